"""Where ``ringlet`` and ``python -m ringlet`` begin.

Until the command line is loaded Ctrl-C ends the process at once, as it ends any program: there is nothing to clean up,
and a traceback of half an import helps nobody.
"""

from __future__ import annotations

import signal
import sys


def main(verb: str = "main") -> int:
    """Load the command line, the module ``verb`` of ``ringlet.cli``, and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from importlib import import_module

    from ringlet import output_streams

    command_line = import_module(f"ringlet.cli.{verb}").main
    output_streams.install()
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    return int(command_line())


def horovodrun() -> int:
    """The command of that name."""
    return main("horovodrun")


if __name__ == "__main__":
    sys.exit(main())

"""Where ``ringlet`` and ``python -m ringlet`` begin.

Until the command line is loaded Ctrl-C ends the process at once, as it ends any program: there is nothing to clean up,
and a traceback of half an import helps nobody.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Load the command line and run it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ringlet import output_streams
    from ringlet.cli.main import main as command_line

    output_streams.install()
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)
    return command_line()


if __name__ == "__main__":
    sys.exit(main())

"""Examples at the end of every verb's ``--help``: each module of a verb lists its own, this adds them to the parser.

A module says ``EXAMPLES = (("ringlet train -n 2", "two workers"), …)``: whole command lines, each with its meaning. A
verb with sub-commands lists those of all of them; each sub-command shows the ones that call it. ``tests/cli`` parses
every line with the real parser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Examples = Sequence[tuple[str, str]]
HEADING = "Examples:"


def with_examples(command: Any, examples: Examples) -> Any:
    """``command``, whose help ends with those of ``examples`` that call it; so do its sub-commands."""
    command.format_epilog = _writer(examples)
    for child in getattr(command, "commands", {}).values():
        with_examples(child, examples)
    return command


def lines_of(examples: Examples, path: str = "ringlet") -> list[str]:
    """The examples that begin with ``path``, as lines with their meanings aligned behind a ``#``."""
    chosen = [(line, meaning) for line, meaning in examples if f"{line} ".startswith(f"{path} ")]
    width = max((len(line) for line, _ in chosen), default=0)
    return [f"{line:<{width}}  # {meaning}" for line, meaning in chosen]


def _writer(examples: Examples) -> Callable[[Any, Any], None]:
    """Writes them as they are: a command line that is wrapped cannot be copied."""

    def write(ctx: Any, formatter: Any) -> None:
        lines = lines_of(examples, ctx.command_path)
        if lines:
            formatter.write(f"\n{HEADING}\n")
            formatter.write("".join(f"  {line}\n" for line in lines))

    return write

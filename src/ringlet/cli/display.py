"""What the command line shows: messages, tables and metrics. Nothing from files reaches the terminal raw."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringlet.output_streams import check_delivered

if TYPE_CHECKING:
    from ringlet.models.spec import ModelSpec


PLAIN_WIDTH = 160
TERMINAL_VARIABLE = "RINGLET_TERMINAL"


def clean(text: object, limit: int = 500) -> str:
    """Text without control characters (terminal escapes, line breaks, direction marks), at most ``limit`` long."""
    plain = "".join(_visible(character) for character in str(text))
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def _visible(character: str) -> str:
    if character == " " or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


def errors_console() -> Console:
    """The console for everything that is not a result."""
    return _console(stderr=True)


def results_console() -> Console:
    """The console for results."""
    return _console(stderr=False)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    settings: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "soft_wrap": False}
    terminal = _launchers_terminal(os.environ.get(TERMINAL_VARIABLE, "")) if stderr and not stream.isatty() else None
    if os.environ.get("NO_COLOR"):
        settings |= {"color_system": None, "no_color": True}  # not even bold
    if terminal is not None:
        return Console(stderr=True, force_terminal=True, **{**terminal, **settings})
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(stderr=stderr, width=width, **settings)


def is_live(console: Console) -> bool:
    """Whether bars may be redrawn: on a terminal, not in a file or pipe, even if that shall have colours."""
    stream = sys.stderr if console.stderr else sys.stdout
    passed_on = console.stderr and _launchers_terminal(os.environ.get(TERMINAL_VARIABLE, "")) is not None
    return console.is_terminal and not console.is_dumb_terminal and (stream.isatty() or passed_on)


def _launchers_terminal(description: str) -> dict[str, Any] | None:
    """Size and colours of the terminal to which a launcher passes this process's stderr: ``120x40+color``."""
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})(\+color)?", description)
    if match is None:
        return None
    return {"width": int(match[1]), "height": int(match[2]), "color_system": "auto" if match[3] else None}


def complain(message: str, heading: str = "error") -> None:
    """An error or warning on stderr; the first line carries the heading."""
    console = errors_console()
    colour = {"error": "bold red", "interrupted": "bold yellow"}.get(heading, "bold cyan")
    for index, line in enumerate(message.splitlines() or [""]):
        head = Text(f"{heading}: " if index == 0 else " " * (len(heading) + 2), style=colour if index == 0 else "")
        console.print(head + Text(clean(line, 2000)), soft_wrap=True)


def note(message: str) -> None:
    """A remark on stderr."""
    complain(message, "note")


def heading(message: str) -> None:
    """A heading of a phase on stderr."""
    errors_console().print(Text(clean(message), style="bold"), soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout; if that is lost, so is the result, and the exit code tells."""
    print(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False))
    check_delivered()


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, centred: bool = False, lines: bool = False
) -> Table:
    """A boxed table of cleaned cells; numbers are set right unless ``centred``."""
    cells = [[_cell(value) for value in row] for row in rows]
    result = Table(box=box.SQUARE, show_lines=lines, header_style="bold", safe_box=False)
    for index, name in enumerate(columns):
        numeric = all(isinstance(row[index], _Number) for row in cells) and cells
        result.add_column(
            name, justify="center" if centred else "right" if numeric else "left", overflow="fold", no_wrap=False
        )
    for row in cells:
        result.add_row(*(Text(str(value)) for value in row))
    return result


class _Number(str):
    """A formatted number, set right in a column."""


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return _Number(f"{value:,}")
    return clean("" if value is None else value)


def plain_value(value: object) -> str:
    """A value of an option as it is given on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def pairs(values: Mapping[str, object], indent: str = "  ") -> Text:
    """``name : value`` lines with aligned colons."""
    width = max((len(name) for name in values), default=0)
    return Text("\n".join(f"{indent}{name:<{width}} : {clean(value)}" for name, value in values.items()))


_SHORT = {
    "loss": "loss",
    "categorical_accuracy": "acc",
    "accuracy": "acc",
    "top5_accuracy": "top5",
    "categorical_hinge": "hin",
    "categorical_mse": "mse",
    "categorical_mae": "mae",
}
_PERCENT = ("accuracy", "top5", "top_5", "dice", "iou")


def short_metrics(metrics: Mapping[str, float], prefix: str = "") -> str:
    """``acc: 97.25%, loss: 0.0912`` for one line."""
    return ", ".join(f"{prefix}{_short(name)}: {format_metric(name, value)}" for name, value in metrics.items())


def format_metric(name: str, value: float) -> str:
    """A share in per cent, anything else with five digits."""
    percent = any(part in name for part in _PERCENT)
    return f"{100 * value:.2f}%" if percent else f"{value:.5f}"


def _short(name: str) -> str:
    bare = name.removeprefix("val_")
    return ("val_" if bare != name else "") + _SHORT.get(bare, bare)


MAX_RULED_ROWS = 40
"""Longer tables have no line between rows."""


def layer_table(spec: ModelSpec, *, with_flops: bool = False) -> Table:
    """One row per layer; ``with_flops`` adds the layer's name and its operations per sample."""
    from ringlet.models.table import COLUMNS, layer_rows

    rows = layer_rows(spec)
    columns = [*COLUMNS, "FLOPs", "Name"] if with_flops else list(COLUMNS)
    cells = [(*row.cells(), f"{row.flops:,}", row.name) if with_flops else row.cells() for row in rows]
    return table(columns, cells, centred=True, lines=len(rows) <= MAX_RULED_ROWS)

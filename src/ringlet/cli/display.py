"""What the command line shows: messages, tables and metrics. Nothing from files reaches the terminal raw."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from ringlet.output_streams import check_delivered
from ringlet.terminal import errors_console as errors_console
from ringlet.terminal import results_console as results_console
from ringlet.training.metric_text import best_epoch as best_epoch
from ringlet.training.metric_text import format_metric as format_metric
from ringlet.training.metric_text import short_metrics as short_metrics

if TYPE_CHECKING:
    from ringlet.models.spec import ModelSpec


def clean(text: object, limit: int = 500) -> str:
    """Text without control characters (terminal escapes, line breaks, direction marks), at most ``limit`` long."""
    plain = "".join(_visible(character) for character in str(text))
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"


def _visible(character: str) -> str:
    if character == " " or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


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
    console = errors_console()
    console.print(Text(clean(message), style="bold"), soft_wrap=not console.is_terminal)


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on stdout; if that is lost, so is the result, and the exit code tells."""
    print(json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False))
    check_delivered()


@dataclass(frozen=True)
class FittedTable:
    """A boxed table that breaks no number: where it is too wide, its columns follow in several tables.

    Each of them begins with the first column, which says whose row it is.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    centred: bool
    lines: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """What fits into the width at hand."""
        del console
        for places in self._groups(options.max_width):
            yield self._part(places)

    def _groups(self, width: int) -> list[list[int]]:
        """Columns, by number, that stand beside each other."""
        needed = [_least_width(name, [row[place] for row in self.rows]) for place, name in enumerate(self.columns)]
        groups: list[list[int]] = [[]]
        for place in range(len(self.columns)):
            group = groups[-1]
            if len(group) > (len(groups) > 1) and _total([needed[own] for own in (*group, place)]) > width:
                groups.append([0, place])
            else:
                group.append(place)
        return groups

    def _part(self, places: Sequence[int]) -> Table:
        result = Table(box=box.SQUARE, show_lines=self.lines, header_style="bold", safe_box=False)
        for place in places:
            cells = [row[place] for row in self.rows]
            numeric = bool(cells) and all(isinstance(cell, Number) for cell in cells)
            justify: Any = "center" if self.centred else "right" if numeric else "left"
            least = min(_least_width(self.columns[place], cells), _LONGEST_WORD)
            result.add_column(self.columns[place], justify=justify, overflow="fold", min_width=least)
        for row in self.rows:
            result.add_row(*(Text(str(row[place])) for place in places))
        return result


_LONGEST_WORD = 40
"""Longer ones, such as paths, may be broken."""
_SHORT_CELL = 18
"""Cells up to this length are not broken at all: ``1.52 ± 3%``."""


def _least_width(name: str, cells: Sequence[str]) -> int:
    """How wide a column must be to break no word and no short cell."""
    words = [
        *name.split(),
        *(word for cell in cells for word in ([cell] if len(cell) <= _SHORT_CELL else cell.split())),
    ]
    return max((min(len(word), _LONGEST_WORD) for word in words), default=1)


def _total(widths: Sequence[int]) -> int:
    """Of columns with their lines and the room beside them."""
    return sum(widths) + 3 * len(widths) + 1


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, centred: bool = False, lines: bool = False
) -> FittedTable:
    """A boxed table of cleaned cells; numbers are set right unless ``centred``."""
    return FittedTable(columns, [[_cell(value) for value in row] for row in rows], centred, lines)


class Number(str):
    """A formatted number, set right in a column."""


def _cell(value: object) -> str:
    if isinstance(value, Number):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Number(f"{value:,}")
    return clean("" if value is None else value)


def plain_value(value: object) -> str:
    """A value of an option as it is given on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def duration(seconds: float) -> str:
    """Roughly how long: ``40 s``, ``12 min``, ``3.5 h``."""
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


def pairs(values: Mapping[str, object], indent: str = "  ") -> Text:
    """``name : value`` lines with aligned colons."""
    width = max((len(name) for name in values), default=0)
    return Text("\n".join(f"{indent}{name:<{width}} : {clean(value)}" for name, value in values.items()))


MAX_RULED_ROWS = 40
"""Longer tables have no line between rows."""


def layer_table(spec: ModelSpec, *, with_flops: bool = False) -> FittedTable:
    """One row per layer; ``with_flops`` adds the layer's name and its operations per sample."""
    from ringlet.models.table import COLUMNS, layer_rows

    rows = layer_rows(spec)
    columns = [*COLUMNS, "FLOPs", "Name"] if with_flops else list(COLUMNS)
    cells = [(*row.cells(), f"{row.flops:,}", row.name) if with_flops else row.cells() for row in rows]
    return table(columns, cells, centred=True, lines=len(rows) <= MAX_RULED_ROWS)

"""The metrics of every finished epoch, one JSON object per line: they grow with a run, so they have their own file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ringlet.checkpoint.manifest import open_regular
from ringlet.errors import CheckpointError, UnreadableCheckpointError
from ringlet.io import jsontext

Row = Mapping[str, float]
MAX_LINE = 1 << 16
_LINES_AT_ONCE = 1_000


def write_history(stream: BinaryIO, rows: Sequence[Row]) -> None:
    """Write one line per row; numbers come back to the bit, those that are not finite as text."""
    for start in range(0, len(rows), _LINES_AT_ONCE):
        lines = [_line(row) for row in rows[start : start + _LINES_AT_ONCE]]
        stream.write("".join(lines).encode("ascii"))


def _line(row: Row) -> str:
    text = jsontext.canonical({name: value if math.isfinite(value) else str(value) for name, value in row.items()})
    if len(text) >= MAX_LINE:
        raise CheckpointError(f"the metrics of an epoch take {len(text):,} characters, at most {MAX_LINE:,} are kept")
    return text + "\n"


def read_history(path: Path) -> list[dict[str, float]]:
    """All rows, each read without trust in the file."""
    rows: list[dict[str, float]] = []
    with open_regular(path) as file:
        try:
            while line := file.readline(MAX_LINE + 1):
                rows.append(parse_row(jsontext.parse(_complete(line).decode("ascii"))))
        except OSError as error:
            raise UnreadableCheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from None
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path.name}, line {len(rows) + 1}: {error}") from None
    return rows


def _complete(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise ValueError("is too long or ends before its end")
    return line


def parse_row(value: Any) -> dict[str, float]:
    """A row from plain values; what is not finite is written as text. TypeError or ValueError for anything else."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not a row of metrics")
    return {str(name): parse_number(number) for name, number in value.items()}


def parse_number(value: Any) -> float:
    """A float from a number or from text such as ``nan``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)

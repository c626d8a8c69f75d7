"""Files of tables: CSV (with a header, any of the usual separators), Parquet and Arrow, as columns of raw values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.data.collecting import default_limit
from ringlet.errors import DataError

TEXT_ENDINGS = (".csv", ".tsv", ".txt")
ARROW_ENDINGS = (".parquet", ".arrow", ".feather")
ENDINGS = (".csv", ".tsv", *ARROW_ENDINGS)
"""By which tables are known where any file may stand."""
_SEPARATORS = ",;\t|"
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
_GROWTH = 12
"""How much more memory texts take than their file, at most."""

Raw = tuple[str, NDArray[Any]]


def read_columns(path: Path) -> Iterator[Raw]:
    """Name and values of every column; missing ones are None or NaN."""
    ending = path.suffix.lower()
    if ending in ARROW_ENDINGS:
        return _arrow(path)
    if ending not in TEXT_ENDINGS:
        raise DataError(f"{path}: a table ends in {', '.join((*TEXT_ENDINGS, *ARROW_ENDINGS))}")
    return _text(path)


def _text(path: Path) -> Iterator[Raw]:
    size, limit = bounded.file_size(path), default_limit() * 2
    if size * _GROWTH > limit:
        raise DataError(
            f"{path}: {size / 1e6:,.0f} MB of text may take {size * _GROWTH / 1e6:,.0f} MB of memory, "
            f"{limit / 1e6:,.0f} MB are free: store it as Parquet, which takes less"
        )
    try:
        with io.TextIOWrapper(bounded.open_file(path), encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            separator = max(_SEPARATORS, key=first.count)
            stream.seek(0)
            rows = csv.reader(stream, delimiter=separator, skipinitialspace=True, strict=True)
            names, columns = _rows(rows, path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text in UTF-8 (byte {error.start:,}): store it as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{path}: not a readable CSV file ({error})") from error
    return ((name, np.array(column, object)) for name, column in zip(names, columns, strict=True))


def _rows(rows: Any, path: Path) -> tuple[list[str], list[list[str | None]]]:
    """Names and columns; a first row of numbers is no header."""
    header = [cell.strip() for cell in next(rows, [])]
    if not header:
        raise DataError(f"{path} is empty: expected a header and rows")
    if all(map(_is_number, header)):
        raise DataError(
            f"{path}: the first row has numbers only ({', '.join(header[:4])} …): expected the names of the columns "
            "there"
        )
    if len(set(header)) < len(header) or "" in header:
        twice = next(name for name in header if header.count(name) > 1 or not name)
        raise DataError(f"{path}: the column name '{twice}' is empty or stands twice: expected each name once")
    columns: list[list[str | None]] = [[] for _ in header]
    for row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(f"{path}, line {rows.line_num}: {len(row)} values for {len(header)} columns")
        for column, cell in zip(columns, row, strict=True):
            text = cell.strip()
            column.append(None if text.lower() in _MISSING else text)
    if not columns[0]:
        raise DataError(f"{path} has a header and no rows: expected at least one")
    return header, columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arrow(path: Path) -> Iterator[Raw]:
    from ringlet.libraries import require

    arrow = require("pyarrow")
    bounded.file_size(path)
    try:
        with bounded.open_file(path) as stream:
            if path.suffix.lower() == ".parquet":
                table = require("pyarrow.parquet").read_table(stream)
            else:
                table = require("pyarrow.feather").read_table(stream)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable {path.suffix[1:]} file ({error})") from error
    if not table.num_rows or not table.num_columns:
        raise DataError(f"{path} is empty: expected rows and columns")
    names = table.column_names
    if len(set(names)) < len(names):
        raise DataError(f"{path}: column names stand twice: expected each once")
    return ((name, np.asarray(table.column(name).to_numpy())) for name in names)

"""Records as files: CSV, JSON or Parquet, by the ending of the name."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringlet.errors import DataError, UsageError
from ringlet.inference.scoring import Record
from ringlet.io.disk import replacing
from ringlet.libraries import require

ENDINGS = (".csv", ".json", ".parquet")
_TOP = "top"


def check_table(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"'{path}' is no table: expected a name that ends in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise UsageError(f"'{path}' is a folder: expected the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{path}': folder '{path.parent}' does not exist. Make it first")
    if path.suffix.lower() == ".parquet":
        require("pyarrow.parquet")


def write_table(path: Path, records: Sequence[Record], top_k: int = 1) -> None:
    """Write all records; the file is there completely or not at all."""
    try:
        with replacing(path) as draft:
            if path.suffix.lower() == ".json":
                draft.write_text(json.dumps(list(records), indent=1, allow_nan=False) + "\n", encoding="utf-8")
            elif path.suffix.lower() == ".csv":
                _write_csv(draft, [flat(record, top_k) for record in records])
            else:
                _write_parquet(draft, [flat(record, top_k) for record in records])
    except OSError as error:
        raise DataError(f"cannot write '{path}': {error.strerror or error}") from error


def flat(record: Record, top_k: int) -> Record:
    """A record without lists: the second best class is ``label_2`` with ``probability_2``, and so on."""
    result = {name: value for name, value in record.items() if name not in (_TOP, "error")}
    for place in range(2, top_k + 1):
        entries = record.get(_TOP) or []
        entry = entries[place - 1] if place <= len(entries) else {"label": None, "probability": None}
        result |= {f"{name}_{place}": value for name, value in entry.items()}
    return result | {"error": record["error"]}


def _write_csv(path: Path, rows: list[Record]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["file", "error"])
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(path: Path, rows: list[Record]) -> None:
    arrow: Any = require("pyarrow")
    kinds = {
        "class": arrow.int64(),
        "width": arrow.int64(),
        "height": arrow.int64(),
        "share": arrow.float64(),
        "probability": arrow.float64(),
    }
    names = list(rows[0]) if rows else ["file", "error"]
    schema = arrow.schema(
        [(name, kinds.get(name.rpartition("_")[0] or name, kinds.get(name, arrow.string()))) for name in names]
    )
    require("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows, schema=schema), path)

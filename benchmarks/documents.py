"""Results as dated files: ``benchmarks/results/NAME-DATE.json``, from which the documentation takes its tables.

A document has the cells of the printed table, which the documentation quotes, and medians and ranges of what lies
behind them; the machine, its software and the options; and the command that repeats it. The first ``num_keys`` cells of
a row say what was measured, so that a later run of some cases (``--merge``) replaces their rows in the newest document
and leaves the others: each row keeps its own date.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringlet.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
BOOKKEEPING = ("defaults", "merge", "output")
"""Options that say where results go, not how they were measured."""


@dataclass(frozen=True)
class Table:
    """What a benchmark found, as cells; ``part`` tells results of one benchmark with different options apart."""

    benchmark: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    part: str = ""
    num_keys: int = 1
    details: Mapping[str, Any] = field(default_factory=dict)
    """Medians and ranges; anything that JSON can hold. Entries of a dictionary ``results`` are merged by their name."""

    @property
    def name(self) -> str:
        """Under which the documentation finds it."""
        return f"{self.benchmark}.{self.part}" if self.part else self.benchmark


def save(table: Table, given: argparse.Namespace, folder: Path | None = None) -> Path:
    """Write the document; with ``--merge`` together with the rows of the newest one that were not measured now."""
    folder = RESULTS if folder is None else folder
    date = time.strftime("%Y-%m-%d")
    document: dict[str, Any] = {
        "benchmark": table.name,
        "date": date,
        "command": command(table.benchmark, given),
        "machine": describe_machine().to_dict(),
        "options": {name: value for name, value in vars(given).items() if not _is_place(name, value)},
        "columns": list(table.columns),
        "num_keys": table.num_keys,
        "rows": [[str(cell) for cell in row] for row in table.rows],
        **table.details,
    }
    if getattr(given, "merge", False):
        earlier = newest(table.name, folder)
        document = document if earlier is None else merge(earlier, document)
    path = getattr(given, "output", None) or folder / f"{table.name}-{date}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_text(document), encoding="utf-8")
    return Path(path)


def command(benchmark: str, given: argparse.Namespace) -> str:
    """What repeats the measurement: the options that differ from their defaults."""
    defaults: Mapping[str, Any] = getattr(given, "defaults", {})
    words = ["python", "-m", f"benchmarks.{benchmark}"]
    words += ["PATH"] if getattr(given, "path", None) else []
    for name, value in vars(given).items():
        if _is_place(name, value) or value is None or value == defaults.get(name, value):
            continue
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, list | tuple):
            words += [option, *map(str, value)]
        else:
            words += [option] if value is True else [option, str(value)]
    return shlex.join(words)


def _is_place(name: str, value: object) -> bool:
    """Whether an option says where something lies on this machine, which means nothing elsewhere."""
    return name in BOOKKEEPING or name == "path" or isinstance(value, Path)


def newest(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """The newest document of this name, if there is one."""
    files = sorted((RESULTS if folder is None else folder).glob(f"{name}-????-??-??.json"))
    return json.loads(files[-1].read_text(encoding="utf-8")) if files else None


def merge(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """``now`` with the rows of ``earlier`` that it does not have, in their place; rows tell their dates."""
    if list(earlier["columns"]) != list(now["columns"]):
        raise SystemExit(
            f"cannot merge into the results of {earlier['date']}: they have other columns "
            f"({', '.join(earlier['columns'])}). Run the whole benchmark, without --merge"
        )
    num_keys = now["num_keys"]
    rows = {tuple(row[:num_keys]): (row, date) for row, date in zip(earlier["rows"], row_dates(earlier), strict=True)}
    rows |= {tuple(row[:num_keys]): (row, now["date"]) for row in now["rows"]}
    merged = {**now, "rows": [row for row, _ in rows.values()], "row_dates": [date for _, date in rows.values()]}
    if isinstance(earlier.get("results"), dict) and isinstance(now.get("results"), dict):
        merged["results"] = {**earlier["results"], **now["results"]}
    return merged


def row_dates(document: Mapping[str, Any]) -> list[str]:
    """The day of every row."""
    return list(document.get("row_dates") or [document["date"]] * len(document["rows"]))


def to_text(document: Mapping[str, Any]) -> str:
    """JSON that reads well and stays short: rows and innermost lists and objects on one line, numbers rounded."""
    text = json.dumps(_rounded(document), indent=1, ensure_ascii=False)
    short = re.compile(r"[\[{]\n\s+([^\[\]{}]*?)\n\s+[\]}]")

    def joined(match: re.Match[str]) -> str:
        line = " ".join(part.strip() for part in match[0].splitlines())
        return f"{line[0]}{line[2:-2]}{line[-1]}"

    return short.sub(joined, text) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value

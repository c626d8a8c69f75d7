"""The last evaluation of a run for its page: what ``ringlet evaluate`` left in the run directory, read with care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from ringlet.evaluation.files import REPORT, SHEETS
from ringlet.training.events import number
from ringlet.training.run_directory import EVALUATION
from ringlet.watch.run_files import count, read_bounded, read_png, table, text

MAX_REPORT_BYTES = 32 << 20
MAX_MATRIX = 100
"""Of more classes the page shows the most frequent confusions instead of the matrix."""
MAX_ROWS, MAX_CONFUSIONS, MAX_BINS = 1000, 20, 50
_CLASS_NUMBERS = ("precision", "recall", "f1", "iou", "dice")
_OUTPUT_NUMBERS = ("mae", "rmse", "r2", "bias", "max_error")


@final
class LastEvaluation:
    """The report in a run directory; it is read again when it was written again."""

    def __init__(self, run: Path) -> None:
        self._folder = run / EVALUATION
        self._stamp: tuple[int, int] | None = None
        self._document: dict[str, Any] | None = None

    def document(self) -> dict[str, Any] | None:
        """For the page; None if there is no report, or something else under its name."""
        try:
            found = (self._folder / REPORT).stat()
            stamp = found.st_mtime_ns, found.st_size
        except OSError:
            self._stamp = self._document = None
            return None
        if stamp != self._stamp:
            self._stamp = stamp
            data = read_bounded(self._folder / REPORT, MAX_REPORT_BYTES)
            self._document = None if data is None else page_document(data, found.st_mtime)
        return self._document

    def sheet(self, name: str) -> bytes | None:
        """A picture of the evaluation."""
        return read_png(self._folder / f"{name}.png") if name in SHEETS else None


def page_document(data: bytes, time: float) -> dict[str, Any] | None:
    """What a page shows of a report; numbers and texts are taken for nothing else."""
    try:
        report = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(report, dict) or not text(report.get("task"), 40):
        return None
    rows = _rows(report)
    pictures = {text(name, 60) for name in _listed(report.get("pictures"), len(SHEETS))}
    return {
        "time": time,
        **{name: text(report.get(name), 200) for name in ("task", "split", "dataset", "tta")},
        "num_samples": count(report.get("num_samples")),
        "metrics": _numbers(report.get("metrics")),
        "averages": {
            text(name, 20): _numbers(means) for name, means in list(table(report.get("averages")).items())[:4]
        },
        "rows": rows,
        "matrix": _matrix(report.get("confusion"), len(rows)),
        "confusions": _confusions(report),
        "calibration": _calibration(report.get("calibration")),
        "sheets": {kind: title for kind, title in SHEETS.items() if f"{kind}.png" in pictures},
    }


def _rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Classes, labels or outputs."""
    colours = [text(value, 7) for value in _listed(report.get("colours"), MAX_ROWS)]
    found = []
    for place, one in enumerate(_listed(report.get("classes"), MAX_ROWS)):
        own = table(one)
        row = {"name": text(own.get("name"), 80), "support": count(own.get("support"))}
        colour = {"colour": colours[place]} if place < len(colours) and _is_colour(colours[place]) else {}
        found.append({**row, **_numbers(own, _CLASS_NUMBERS), **colour})
    outputs = _listed(report.get("outputs"), MAX_ROWS)
    return found + [{"name": text(table(one).get("name"), 80), **_numbers(one, _OUTPUT_NUMBERS)} for one in outputs]


def _matrix(value: Any, size: int) -> list[list[int]] | None:
    rows = value if isinstance(value, list) else []
    if not 2 <= len(rows) <= MAX_MATRIX or len(rows) != size:
        return None
    if any(not isinstance(row, list) or len(row) != size for row in rows):
        return None
    return [[count(cell) for cell in row] for row in rows]


def _confusions(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = (table(one) for one in _listed(report.get("top_confusions"), MAX_CONFUSIONS))
    return [
        {
            "truth": text(one.get("truth"), 80),
            "predicted": text(one.get("predicted"), 80),
            "count": count(one.get("count")),
            "share": number(one.get("share")),
        }
        for one in found
    ]


def _calibration(value: Any) -> dict[str, Any] | None:
    found = table(value)
    bins = [
        _numbers(one, ("low", "high", "count", "confidence", "accuracy"))
        for one in _listed(found.get("bins"), MAX_BINS)
    ]
    return {**_numbers(found, ("ece", "mce", "confidence", "accuracy")), "bins": bins} if bins else None


def _numbers(value: Any, names: tuple[str, ...] = ()) -> dict[str, float | None]:
    """The numbers of a mapping: those of ``names`` that it has, or the first twenty."""
    found = table(value)
    chosen = [name for name in names if name in found] or ([] if names else list(found)[:20])
    return {text(name, 60): number(found[name]) for name in chosen}


def _listed(value: Any, limit: int) -> list[Any]:
    return value[:limit] if isinstance(value, list) else []


def _is_colour(value: str) -> bool:
    return len(value) == 7 and value[0] == "#" and all(character in "0123456789abcdef" for character in value[1:])

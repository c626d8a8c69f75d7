"""A report as files: ``report.json`` with everything, tables for spreadsheets, pictures of the worst samples."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.data.palette import as_hex
from ringlet.errors import UsageError
from ringlet.evaluation.classes import UNLIKELY, WORST, WRONG
from ringlet.evaluation.sheets import Sample, draw_sheet, draw_tiles
from ringlet.io.disk import write_whole

if TYPE_CHECKING:
    from PIL.Image import Image

    from ringlet.evaluation.report import Report
    from ringlet.evaluation.scores import Example

REPORT = "report.json"
SHEETS = {WRONG: "most confident wrong", UNLIKELY: "least likely truth", WORST: "worst"}
"""Kinds of examples, which name their pictures, and what they are called there."""


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write all files; what an earlier report left there under these names is replaced or removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder '{folder}': {error.strerror}. Choose another") from None
    contents: dict[str, bytes] = {}
    rows = report.classes or report.outputs
    if rows:
        table = [asdict(row) for row in rows]
        contents["classes.csv"] = _csv(list(table[0]), (list(row.values()) for row in table))
    if report.confusion is not None:
        cells = zip(report.names, report.confusion.tolist(), strict=True)
        contents["confusion.csv"] = _csv(["truth \\ predicted", *report.names], ([name, *row] for name, row in cells))
    for kind, sheet in draw_examples(report).items():
        drawn = io.BytesIO()
        sheet.save(drawn, format="PNG", optimize=False)
        contents[f"{kind}.png"] = drawn.getvalue()
    colours = [as_hex(index) for index in range(len(report.classes))] if report.task == "segmentation" else []
    document = {**report.to_dict(), "colours": colours, "pictures": [name for name in contents if name.endswith("png")]}
    for name in {"classes.csv", "confusion.csv", *(f"{kind}.png" for kind in SHEETS)} - contents.keys():
        (folder / name).unlink(missing_ok=True)
    contents[REPORT] = json.dumps(document, allow_nan=False).encode()
    for name, content in contents.items():
        write_whole(folder / name, content, durable=False)
    return [folder / name for name in contents]


def draw_examples(report: Report) -> dict[str, Image]:
    """A contact sheet of each kind of examples; none where samples are no images."""
    source = report.source
    if source is None or len(source.input_shape) != 3:
        return {}
    return {kind: _sheet(report, kind, found) for kind, found in report.examples.items() if found}


def _sheet(report: Report, kind: str, found: Sequence[Example]) -> Image:
    source = report.source
    assert source is not None
    inputs, targets = source.read(np.array([one.index for one in found], np.int64))
    if report.task == "segmentation":
        truths = targets.reshape(len(targets), *targets.shape[-2:])
        samples = [Sample(one.index, *parts) for one, *parts in zip(found, inputs, truths, strict=True)]
        masks = [report.masks[one.index] for one in found]
        return draw_sheet(samples, masks, source.num_classes, SHEETS[kind])
    return draw_tiles(list(inputs), [caption(one) for one in found], f"{SHEETS[kind]}, {report.split} data")


def caption(one: Example) -> tuple[str, ...]:
    """What is written below an example: truth, prediction, and which sample it is."""
    place = Path(one.file).name if one.file else f"sample {one.index}"
    if one.confidence is None:
        about = f"error {one.error:.4g}" if one.error is not None else ""
        return (f"truth {one.truth}", f"predicted {one.predicted}", about, place) if one.truth else (about, place)
    of_truth = "" if one.truth_confidence is None else f" {100 * one.truth_confidence:.1f}%"
    return (f"truth {one.truth}{of_truth}", f"predicted {one.predicted} {100 * one.confidence:.1f}%", place)


def _csv(columns: list[str], rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()

"""A report of an evaluation for the terminal: tables that fit its width, the most telling rows of long ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ringlet.cli import display

if TYPE_CHECKING:
    from ringlet.evaluation import Calibration, ClassScores, Example, Report

NUM_CONFUSIONS, NUM_EXAMPLES = 8, 5
MAX_NAME, MAX_CELL = 24, 10
TITLES = {
    "most_confident_wrong": "Most confident wrong",
    "least_likely_truth": "Least likely truth",
    "worst": "Worst samples",
}


def report_parts(report: Report, width: int, num_classes: int) -> Iterator[Any]:
    """Everything to print, in order."""
    if report.classes:
        yield _class_table(report, num_classes)
        left_out = len(report.classes) - num_classes
        if num_classes and left_out > 0:
            yield Text(f"The {num_classes} weakest of {len(report.classes):,} classes; --classes 0 shows all")
    if report.outputs:
        yield _output_table(report, num_classes)
    matrix = confusion_lines(report, width)
    if matrix:
        yield Text("\nConfusion: truth in rows, prediction in columns")
        yield from matrix
    elif report.confusions(1):
        yield Text("\nMost frequent confusions")
        yield _confusion_table(report)
    if report.calibration is not None:
        yield Text(calibration_line(report.calibration))
    for kind, found in report.examples.items():
        if found and kind in TITLES:
            yield Text(f"\n{TITLES[kind]}")
            yield _example_table(found[:NUM_EXAMPLES])


def weakest(classes: Sequence[ClassScores], limit: int) -> list[ClassScores]:
    """All classes in their order; if they are more than ``limit``, the weakest (by IoU or F1) first."""
    if not limit or len(classes) <= limit:
        return list(classes)
    found = (one for one in classes if one.occurs)
    return sorted(found, key=lambda one: one.f1 if one.iou is None else one.iou)[:limit]


def _class_table(report: Report, num_classes: int) -> Any:
    masks = report.task == "segmentation"
    names = ("precision", "recall", "f1", *(("iou", "dice") if masks else ()))
    columns = (
        "Class",
        "Precision",
        "Recall",
        "F1",
        *(("IoU", "Dice") if masks else ()),
        "Pixels" if masks else "Count",
    )
    shown = weakest(report.classes, num_classes)
    rows: list[tuple[object, ...]] = [
        (display.clean(one.name, MAX_NAME), *(_percent(getattr(one, name)) for name in names), one.support)
        for one in shown
    ]
    total = sum(one.support for one in report.classes)
    for kind, means in report.averages.items():
        rows.append((f"{kind} mean", *(_percent(means.get(name)) for name in names), total))
    return display.table(columns, rows)


def _output_table(report: Report, num_outputs: int) -> Any:
    names = ("mae", "rmse", "r2", "bias", "max_error")
    shown = report.outputs if not num_outputs else report.outputs[:num_outputs]
    rows = [(display.clean(one.name, MAX_NAME), *(_digits(getattr(one, name)) for name in names)) for one in shown]
    for kind, means in report.averages.items() if len(report.outputs) > 1 else ():
        rows.append((f"{kind} mean", *(_digits(means.get(name)) for name in names)))
    return display.table(("Output", "MAE", "RMSE", "R²", "Bias", "Largest error"), rows)


def confusion_lines(report: Report, width: int) -> list[Text]:
    """The confusion matrix if it fits: one line per true class, right answers bold, frequent mistakes red."""
    matrix = report.confusion
    if matrix is None or not len(matrix):
        return []
    names = [display.clean(name, MAX_NAME) for name in report.names]
    digits = max(len(f"{value:,}") for value in matrix.ravel().tolist())
    label = min(max(map(len, names)), max(8, width // 5))
    cell = min(max(digits, *map(len, names)), MAX_CELL, (width - label) // len(names) - 1)
    if cell < max(digits, 2):
        return []
    lines = [Text(" " * label + "".join(f" {name[:cell]:>{cell}}" for name in names), style="bold")]
    for row, name in enumerate(names):
        line, total = Text(f"{name[:label]:<{label}}"), max(int(matrix[row].sum()), 1)
        for column, value in enumerate(matrix[row].tolist()):
            style = "bold" if row == column else "red" if value >= 0.05 * total else ""
            line.append(f" {f'{value:,}' if value else '·':>{cell}}", style=style)
        lines.append(line)
    return lines


def _confusion_table(report: Report) -> Any:
    rows = [
        (display.clean(one.truth, MAX_NAME), display.clean(one.predicted, MAX_NAME), one.count, _percent(one.share))
        for one in report.confusions(NUM_CONFUSIONS)
    ]
    return display.table(("Truth", "Predicted", "Count", "Share of truth"), rows)


def calibration_line(calibration: Calibration) -> str:
    """``Calibration: error 1.83 % …`` in one line."""
    gap = calibration.confidence - calibration.accuracy
    verdict = "well calibrated" if abs(gap) < 0.01 and calibration.ece < 0.02 else ""
    verdict = verdict or ("over-confident" if gap > 0 else "under-confident")
    return (
        f"\nCalibration: expected error (ECE) {_percent(calibration.ece)}, mean confidence "
        f"{_percent(calibration.confidence)} at {_percent(calibration.accuracy)} right: {verdict}"
    )


def _example_table(found: Sequence[Example]) -> Any:
    columns = ["Sample"]
    cells = [[display.clean(one.file or str(one.index), 60)] for one in found]
    values = {
        "Truth": [display.clean(one.truth, MAX_NAME) for one in found],
        "Predicted": [display.clean(one.predicted, MAX_NAME) for one in found],
        "Confidence": [_percent(one.confidence) for one in found],
        "IoU": [_percent(one.iou) for one in found],
        "Error": [_digits(one.error) for one in found],
    }
    for name, column in values.items():
        if any(column):
            columns.append(name)
            for row, value in zip(cells, column, strict=True):
                row.append(value)
    return display.table(columns, cells)


def _percent(value: float | None) -> str:
    return display.Number("" if value is None else f"{100 * value:.2f}%")


def _digits(value: float | None) -> str:
    return display.Number("" if value is None else f"{value:.5g}")

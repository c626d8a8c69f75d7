"""One sentence per comparison, which does not claim more than the repeats bear out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ringlet.bench.timing import Estimate, ratio
from ringlet.study.grid import DIMENSIONS, Cell
from ringlet.study.summary import Row, Scaling, Summary

PAYS = 0.7
"""The efficiency from which on workers pay."""
WIDE = 0.05
"""From this spread on a verdict names the range."""
_ORDINALS = {2: "second", 3: "third", 4: "fourth"}


@dataclass(frozen=True)
class Verdict:
    """A sentence, where it belongs to, and the ratio that it rests on: ``cell`` is ``times`` as fast as ``beside``."""

    dimension: str
    context: str
    sentence: str
    cell: Cell
    beside: Cell
    times: Estimate

    @property
    def is_noise(self) -> bool:
        """Whether the repeats do not even agree on which is faster."""
        return is_noise(self.times)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "dimension": self.dimension,
            "context": self.context,
            "sentence": self.sentence,
            "cell": self.cell.name,
            "beside": self.beside.name,
            "times": self.times.to_dict(),
            "is_noise": self.is_noise,
        }


def is_noise(times: Estimate) -> bool:
    """Whether a ratio's range has 1 in it."""
    return times.count < 2 or times.low <= 1.0 <= times.high


def all_verdicts(summary: Summary) -> list[Verdict]:
    """Every comparison that the study allows, workers first."""
    found = [_of_workers(summary, row, scaling) for row, scaling in _scaled(summary)]
    for dimension in DIMENSIONS[1:]:
        found += _along(summary, dimension)
    return found


def _scaled(summary: Summary) -> Iterator[tuple[Row, Scaling]]:
    for row in summary.measured:
        scaling = summary.scaling(row)
        if scaling is not None and scaling.baseline.workers != row.cell.workers and row.cell.distribution:
            yield row, scaling


def _of_workers(summary: Summary, row: Row, scaling: Scaling) -> Verdict:
    few, many = scaling.baseline.workers, row.cell.workers
    context = describe(summary, row.cell, "workers")
    sentence = workers_sentence(few, many, scaling.speed_up, scaling.efficiency)
    return Verdict("workers", context, sentence, row.cell, scaling.baseline, scaling.speed_up)


def workers_sentence(few: int, many: int, speed_up: Estimate, efficiency: float) -> str:
    """``The second worker pays: 1.80x, 90 % efficiency.``"""
    one_more = few == many - 1 and many in _ORDINALS
    who = f"The {_ORDINALS[many]} worker" if one_more else f"{many} workers instead of {few}"
    ending = "s" if one_more else ""
    numbers = f"{times_text(speed_up)}, {100 * efficiency:.0f} % efficiency"
    if is_noise(speed_up):
        return f"{who}: no verdict. {speed_up.median:.2f}x, {100 * efficiency:.0f} % efficiency, but {_noise(speed_up)}"
    if speed_up.median < 1:
        return f"{who} {'does' if one_more else 'do'} not pay: {numbers}."
    pays = efficiency >= PAYS
    ideal = speed_up.median / efficiency
    unsure = (speed_up.low / ideal >= PAYS) != (speed_up.high / ideal >= PAYS)
    maybe = "probably " if unsure else ""
    return f"{who} {maybe}pay{ending}{'' if pays else ' little'}: {numbers}."


def times_text(times: Estimate) -> str:
    """``1.80x``, and the range of the repeats where it is wide: ``1.52x (between 1.21x and 1.90x)``."""
    spread = f" (between {times.low:.2f}x and {times.high:.2f}x)" if times.spread > WIDE else ""
    return f"{times.median:.2f}x{spread}"


def _along(summary: Summary, dimension: str) -> list[Verdict]:
    """Cells that differ in one dimension alone, each beside the first of them."""
    found = []
    for first, others in _groups(summary, dimension):
        for other in others:
            times = ratio(first.rates, other.rates)
            if times is not None:
                found.append(_between(summary, dimension, first, other, times))
    return found


def _groups(summary: Summary, dimension: str) -> Iterator[tuple[Row, list[Row]]]:
    groups: dict[Cell, list[Row]] = {}
    for row in summary.measured:
        groups.setdefault(row.cell.with_(dimension, None), []).append(row)
    for rows in groups.values():
        if len(rows) > 1:
            yield rows[0], rows[1:]


def _between(summary: Summary, dimension: str, first: Row, other: Row, times: Estimate) -> Verdict:
    cell, beside = first, other
    if times.median < 1:
        cell, beside, times = other, first, Estimate(1 / times.median, 1 / times.high, 1 / times.low, times.count)
    context = describe(summary, first.cell, dimension)
    sentence = between_sentence(value_text(cell.cell, dimension), value_text(beside.cell, dimension), times)
    reached = _reached(summary, cell, beside) if dimension != "engine" else ""
    return Verdict(dimension, context, sentence + reached, cell.cell, beside.cell, times)


def between_sentence(name: str, other: str, times: Estimate) -> str:
    """``native is 2.10x as fast as torch.``"""
    if is_noise(times):
        return f"{name} and {other}: no verdict. {times.median:.2f}x, but {_noise(times)}"
    return f"{name} is {times_text(times)} as fast as {other}."


def _noise(times: Estimate) -> str:
    if times.count < 2:
        return "one measurement alone does not tell it from noise: give more repeats or epochs."
    return f"repeats range from {times.low:.2f}x to {times.high:.2f}x: noise is larger than the difference."


def _reached(summary: Summary, cell: Row, beside: Row) -> str:
    """What was learned in the same number of epochs."""
    metric = summary.main_metric
    if metric is None or metric not in cell.final or metric not in beside.final:
        return ""
    one, other = cell.final[metric].median, beside.final[metric].median
    return f" {metric} after the last epoch: {one:.4f} against {other:.4f}."


def value_text(cell: Cell, dimension: str) -> str:
    """The value of a dimension in words."""
    if dimension == "distribution":
        return f"training {'with' if cell.distribution else 'without'} data distribution"
    if dimension == "batch":
        return f"batch {cell.batch}"
    return str(getattr(cell, dimension))


def describe(summary: Summary, cell: Cell, *leave_out: str) -> str:
    """The network and the values in which cells of this study differ: ``vgg16_bn, torch, 2 workers``."""
    cells = summary.design.cells
    dimensions = [name for name in ("engine", "strategy", "batch", "workers", "distribution") if name not in leave_out]
    varying = [name for name in dimensions if len({getattr(other, name) for other in cells}) > 1]
    if cell.workers == 1 and "workers" not in leave_out and "distribution" in varying:
        varying.remove("distribution")  # one worker has all data in any case
    model = [] if "model" in leave_out else [cell.model]
    return ", ".join([*model, *(word(cell, name) for name in varying)])


def short_name(summary: Summary, cell: Cell) -> str:
    """The same without the network, where the study has one alone."""
    is_only = len({other.model for other in summary.design.cells}) == 1
    return describe(summary, cell, *(["model"] if is_only else [])) or cell.model


def word(cell: Cell, dimension: str) -> str:
    """One value in a word or two."""
    if dimension == "workers":
        return f"{cell.workers} worker{'s' if cell.workers > 1 else ''}"
    if dimension == "batch":
        return f"batch {cell.batch}"
    if dimension == "distribution":
        return "data shared out" if cell.distribution else "all data each"
    return str(getattr(cell, dimension))

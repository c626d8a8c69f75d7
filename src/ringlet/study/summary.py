"""From records to rows: one per cell, with medians over repeats, speed-up, efficiency, shares and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ringlet.bench.timing import Estimate, estimate, ratio
from ringlet.optim.metric_names import is_maximised
from ringlet.study.design import StudyDesign
from ringlet.study.grid import Cell, Place
from ringlet.study.measurement import GROUPS, Epoch, Measurement
from ringlet.study.options import find_metric, parse_target

Records = Mapping[Place, Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """What is known of a cell: its good runs by repeat, and why others failed."""

    cell: Cell
    runs: Mapping[int, Measurement]
    failures: Mapping[int, str]

    @property
    def epoch_seconds(self) -> dict[int, list[float]]:
        """Seconds of every epoch that counts, by repeat."""
        return {repeat: [epoch.seconds for epoch in counted(run)] for repeat, run in self.runs.items()}

    @property
    def seconds(self) -> Estimate:
        """Time of an epoch: the median over repeats of each repeat's median."""
        return _over_repeats(self.epoch_seconds)

    @property
    def rates(self) -> dict[int, list[float]]:
        """Samples per second of every epoch that counts, by repeat; work that workers repeat counts once."""
        times = 1 if self.cell.distribution else self.cell.workers
        return {
            repeat: [epoch.num_samples / times / max(epoch.seconds, 1e-9) for epoch in counted(run)]
            for repeat, run in self.runs.items()
        }

    @property
    def rate(self) -> Estimate:
        """Samples per second."""
        return _over_repeats(self.rates)

    @property
    def shares(self) -> dict[str, float]:
        """Where the time went, as shares that add up to one; empty if it was not measured."""
        measured = [epoch.shares for run in self.runs.values() for epoch in counted(run) if epoch.shares]
        if not measured:
            return {}
        medians = {group: median(entry[group] for entry in measured) for group in GROUPS}
        whole = sum(medians.values()) or 1.0
        return {group: value / whole for group, value in medians.items()}

    @property
    def final(self) -> dict[str, Estimate]:
        """Metrics of the last epoch (and ``test_…``), over repeats."""
        found: dict[str, list[float]] = {}
        for run in self.runs.values():
            tested = {f"test_{name}": value for name, value in run.test.items()}
            for name, value in {**run.epochs[-1].metrics, **tested}.items():
                found.setdefault(name, []).append(value)
        return {name: estimate(values) for name, values in found.items()}

    def time_to(self, metric: str, value: float) -> dict[int, float | None]:
        """Training seconds until ``metric`` reached ``value``, by repeat; None where it never did."""
        return {repeat: time_to(run, metric, value) for repeat, run in self.runs.items()}


@dataclass(frozen=True)
class Scaling:
    """A row beside its baseline: the same cell with the fewest workers."""

    baseline: Cell
    speed_up: Estimate
    ideal: float

    @property
    def efficiency(self) -> float:
        """The share of the ideal speed-up."""
        return self.speed_up.median / self.ideal


@dataclass(frozen=True)
class Summary:
    """All rows of a study, in the order of its grid."""

    design: StudyDesign
    rows: tuple[Row, ...]

    @property
    def measured(self) -> list[Row]:
        """Rows with at least one good run."""
        return [row for row in self.rows if row.runs]

    def row(self, cell: Cell) -> Row | None:
        """The row of a cell, if it was measured."""
        return next((row for row in self.measured if row.cell == cell), None)

    def scaling(self, row: Row) -> Scaling | None:
        """Speed-up over the baseline; None where that was not measured."""
        base = self.baseline(row)
        if base is None or not row.runs:
            return None
        speed_up = ratio(row.rates, base.rates)
        if speed_up is None:
            return None
        ideal = row.cell.workers / base.cell.workers if row.cell.distribution else 1.0
        return Scaling(base.cell, speed_up, ideal)

    def baseline(self, row: Row) -> Row | None:
        """The same engine, network, strategy and batch at the fewest workers of the study."""
        same = [other for other in self.rows if _is_alike(other.cell, row.cell)]
        fewest = min(other.cell.workers for other in same)
        chosen = [other for other in same if other.cell.workers == fewest and other.runs]
        return max(chosen, key=lambda other: other.cell.distribution == row.cell.distribution, default=None)

    @property
    def target(self) -> tuple[str, float] | None:
        """The metric to reach, by its name in the logs (``val_accuracy``), and its value."""
        wish = parse_target(self.design.options.target)
        if wish is None or not self.measured:
            return None
        known = {name for row in self.measured for name in row.final if not name.startswith("test_")}
        return find_metric(wish[0], known), wish[1]

    @property
    def main_metric(self) -> str | None:
        """The validation metric to show: the target's, else accuracy or dice, else the loss."""
        if self.target is not None:
            return self.target[0]
        known = [name for row in self.measured for name in row.final if not name.startswith("test_")]
        validated = [name for name in known if name.startswith("val_")] or known
        return next((name for name in validated if is_maximised(name)), next(iter(validated), None))


def summarise(design: StudyDesign, records: Records) -> Summary:
    """Put the records of a study together; runs that have none are left out."""
    rows = []
    for cell in design.cells:
        own = {place.repeat: record for place, record in records.items() if place.cell == cell}
        runs = {
            repeat: Measurement.from_dict(record["measurement"])
            for repeat, record in sorted(own.items())
            if record["status"] == "finished"
        }
        failures = {repeat: record["reason"] for repeat, record in sorted(own.items()) if record["status"] == "failed"}
        rows.append(Row(cell, runs, failures))
    return Summary(design, tuple(rows))


def counted(run: Measurement) -> tuple[Epoch, ...]:
    """The epochs whose times count: not the first, which warms up, if there are others."""
    return run.epochs[1:] or run.epochs


def time_to(run: Measurement, metric: str, value: float) -> float | None:
    """Training seconds, from the first epoch on, until ``metric`` was at least (a loss: at most) ``value``."""
    seconds = 0.0
    for epoch in run.epochs:
        seconds += epoch.seconds
        reached = epoch.metrics.get(metric)
        if reached is not None and (reached >= value if is_maximised(metric) else reached <= value):
            return seconds
    return None


def _over_repeats(values: Mapping[int, list[float]]) -> Estimate:
    """One value per repeat; of a single repeat its own values."""
    if len(values) == 1:
        return estimate(next(iter(values.values())))
    return estimate([median(own) for own in values.values()])


def _is_alike(one: Cell, other: Cell) -> bool:
    return (one.model, one.engine, one.strategy, one.batch) == (other.model, other.engine, other.strategy, other.batch)

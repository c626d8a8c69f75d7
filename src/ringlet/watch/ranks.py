"""Where the time of every rank went, and how old gradients were: what events say of workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from ringlet.training.events import number
from ringlet.watch.run_files import count, text

MAX_RANKS = 32
"""So many ranks are shown one by one; of more, those that the others waited for and those that waited most."""
MAX_PHASES = 24
_MAX_MEASURED = 1 << 16
"""So many ranks are looked at; a run has fewer."""
GROUPS = {
    "forward": "compute",
    "backward": "compute",
    "metrics": "compute",
    "update": "compute",
    "reduce": "exchange",
    "exchange": "exchange",
    "wait": "wait",
    "data": "data",
    "validation": "validation",
}
"""Phases of :mod:`ringlet.timeline` as they are added up for people; what is missing here is "other"."""


@final
class RankTimes:
    """Seconds of each rank and group of phases, in the last epoch and in all of them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.last: list[dict[str, float]] = []
        self.total: list[dict[str, float]] = []

    def take(self, record: Mapping[str, Any]) -> dict[str, float]:
        """Note a ``phases_measured`` event; gives the share of every group in the time of all ranks."""
        phases, rows = record.get("phases"), record.get("seconds")
        if not isinstance(phases, list) or not isinstance(rows, list):
            return {}
        names = [GROUPS.get(text(phase), "other") for phase in phases[:MAX_PHASES]]
        self.last = [_grouped(names, row) for row in rows[:_MAX_MEASURED]]
        if len(self.total) != len(self.last):
            self.total = [{} for _ in self.last]  # the run was resumed with another number of workers
        for total, own in zip(self.total, self.last, strict=True):
            for name, seconds in own.items():
                total[name] = total.get(name, 0.0) + seconds
        self.epoch = count(record.get("epoch"))
        return _shares(self.last)

    @property
    def document(self) -> dict[str, Any] | None:
        """For the page: the ranks that tell most; None before anything was measured."""
        if not self.last:
            return None
        return {
            "epoch": self.epoch,
            "count": len(self.last),
            "last": [{"rank": rank, "seconds": self.last[rank]} for rank in telling_ranks(self.last)],
            "total": [{"rank": rank, "seconds": self.total[rank]} for rank in telling_ranks(self.total)],
            "shares": {"last": _shares(self.last), "total": _shares(self.total)},
        }


def telling_ranks(rows: list[dict[str, float]], limit: int = MAX_RANKS) -> list[int]:
    """All ranks; if they are too many, half of ``limit`` that waited least and half that waited most, in order."""
    if len(rows) <= limit:
        return list(range(len(rows)))
    by_wait = sorted(range(len(rows)), key=lambda rank: rows[rank].get("wait", 0.0))
    return sorted([*by_wait[: limit // 2], *by_wait[-(limit - limit // 2) :]])


def _grouped(names: list[str], row: Any) -> dict[str, float]:
    grouped: dict[str, float] = {}
    values = row if isinstance(row, list) else []
    for name, value in zip(names, values, strict=False):
        grouped[name] = grouped.get(name, 0.0) + max(number(value) or 0.0, 0.0)
    return grouped


def _shares(rows: list[dict[str, float]]) -> dict[str, float]:
    """The share of each group in the time of all ranks together."""
    sums: dict[str, float] = {}
    for row in rows:
        for name, seconds in row.items():
            sums[name] = sums.get(name, 0.0) + seconds
    whole = sum(sums.values())
    return {name: seconds / whole for name, seconds in sums.items()} if whole > 0 else {}


@final
class Staleness:
    """How old gradients were in the last epoch, for strategies whose workers do not wait for each other."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None

    def take(self, record: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Note a ``staleness_measured`` event; gives mean and maximum."""
        histogram = record.get("histogram")
        counts = [count(entry) for entry in histogram[:64]] if isinstance(histogram, list) else []
        while counts and not counts[-1]:
            counts.pop()
        mean, most = number(record.get("mean")), number(record.get("max"))
        self.document = {"epoch": count(record.get("epoch")), "mean": mean, "max": most, "histogram": counts}
        return mean, most

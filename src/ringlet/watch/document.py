"""What a page lacks: the difference between what runs are and what it was sent before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

from ringlet.watch.run_view import RunView
from ringlet.watch.series import Series


@final
class Cursor:
    """What one page has been sent. A fresh one has nothing, so that the first document is complete."""

    def __init__(self) -> None:
        self._runs: dict[int, _RunCursor] = {}

    def take(self, runs: Sequence[RunView]) -> dict[str, Any]:
        """All that is new since the last call, as plain values; runs without news have no entry."""
        found = []
        for index, run in enumerate(runs):
            known = self._runs.get(index)
            is_new = known is None or known.generation != run.generation
            if known is None or is_new:
                known = self._runs[index] = _RunCursor(run.generation)
            news = known.take(run)
            if news or is_new:
                found.append({"index": index, "name": run.name, "path": str(run.path), "anew": is_new, **news})
        return {"runs": found} if found else {}


class _RunCursor:
    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._lengths: dict[str, tuple[int, int]] = {}
        self._num_notes = 0
        self._sent: dict[str, str] = {}

    def take(self, run: RunView) -> dict[str, Any]:
        news: dict[str, Any] = {}
        series = {name: self._points(name, one) for name, one in run.series.items()}
        series = {name: points for name, points in series.items() if points}
        if series:
            news["series"] = series
        total = run.notes.num_dropped + len(run.notes.items)
        if total > self._num_notes:
            news["notes"] = run.notes.items[-(total - self._num_notes) :]
            self._num_notes = total
        for name, value in {
            "about": run.about,
            "status": run.status,
            "tests": run.tests,
            "ranks": run.ranks.document() if run.ranks.version else None,
            "staleness": run.staleness.document,
            "checkpoints": run.checkpoints(),
            "pictures": run.pictures(),
        }.items():
            self._add_changed(news, name, value)
        return news

    def _points(self, name: str, series: Series) -> dict[str, Any]:
        """The points of a curve that are new, or all of them if it was thinned."""
        generation, length = self._lengths.get(name, (series.generation, 0))
        start = length if generation == series.generation else 0
        self._lengths[name] = series.generation, len(series.x)
        if start == len(series.x):
            return {}
        return {"start": start, "x": series.x[start:], "y": series.y[start:]}

    def _add_changed(self, news: dict[str, Any], name: str, value: Any) -> None:
        written = json.dumps(value)
        if self._sent.get(name) != written:
            self._sent[name] = written
            news[name] = value

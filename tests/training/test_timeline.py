"""Phases are added up, and handed on."""

from ringlet import timeline
from ringlet.timeline import PHASES, PhaseTotals, RecordedTimeline


def test_phases_are_added_up_until_they_are_taken(monkeypatch):
    readings = iter([0, 10, 30, 60, 100, 150])
    monkeypatch.setattr(timeline, "monotonic_ns", lambda: next(readings) * 10**9)
    totals = PhaseTotals()
    for phase in ("data", "forward", "data"):
        totals.mark(phase)
    assert totals.take() == _seconds(other=10, data=20 + 40, forward=30)
    assert totals.take() == _seconds(other=50)


def test_every_mark_is_handed_on():
    recorded = RecordedTimeline()
    totals = PhaseTotals(recorded)
    totals.mark("forward")
    totals.mark("wait")
    assert [PHASES[place] for place in recorded.phases] == ["forward", "wait"]


def _seconds(**seconds):
    return [seconds.get(phase, 0.0) for phase in PHASES]

"""Logs of every kind of event, with values that no one expects in any of their fields."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from hypothesis import strategies as st

from ringlet.training.events import Event, event_name

_USUAL: dict[str, Any] = {
    "str": "after",
    "int": 3,
    "float": 1.5,
    "bool": True,
    "Metrics": {"loss": 0.5, "val_loss": 0.25},
    "Mapping[str, Any]": {"strategy": "sync", "seed": 3},
    "Mapping[str, str]": {"ringlet": "0"},
    "tuple[int, ...]": [1, 2, 3],
    "tuple[str, ...]": ["forward", "wait", "wait"],
    "tuple[tuple[float, ...], ...]": [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]],
}
"""A value for every type that fields of events have."""
_EXTREME = (
    1e308, -1e308, 1e100, 1e101, 5e-324, 10**400, -(10**400), 2**53, 2**63, 2**53 - 1, -1, 0, 0.0, 10**12, 1e12,
    float("nan"), float("inf"), float("-inf"), "nan", "inf", "1e999", "", "x" * 100_000, "</script><!--",
    "\ud800", "\0", None, True, False, [], {},
)  # fmt: skip

extremes = st.sampled_from(_EXTREME)
hostile_values = (
    extremes
    | st.lists(extremes, max_size=70)
    | st.lists(st.lists(extremes, max_size=30), max_size=40)
    | st.dictionaries(st.text(max_size=80), extremes, max_size=30)
    | st.recursive(extremes, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
)


def usual_records() -> list[dict[str, Any]]:
    """Two of every kind of event."""
    found = []
    for number in range(2):
        for kind in get_args(Event):
            own = {field.name: _USUAL[str(field.type)] for field in fields(kind)}
            steps = {name: own[name] + number for name in ("step", "epoch") if name in own}
            name = event_name(kind.__new__(kind))
            found.append({"event": name, "time": 1_700_000_000.0 + len(found), **own, **steps})
    return found


@st.composite
def hostile_records(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A log in any order in which some fields hold what they should not."""
    records = draw(st.permutations(usual_records()))
    for _ in range(draw(st.integers(1, 12))):
        record = draw(st.sampled_from(records))
        record[draw(st.sampled_from([name for name in record if name != "event"]))] = draw(hostile_values)
    return records


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    """The log of a run; NaN and infinities as other writers put them."""
    path = folder / "events.ndjson"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path

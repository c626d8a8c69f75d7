"""What rests keeps its bits: a weighted mean of equal numbers may differ from them in the last one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ringlet.engines.contract import Floats
from ringlet.optim import Segment, resting


@contextmanager
def held(values: Floats, segments: Iterable[Segment], step: int) -> Iterator[None]:
    """Within, ``values`` may change; afterwards those of segments that do not learn at ``step`` are as before."""
    kept = [(part, values[part].copy()) for part in resting(segments, step)]
    yield
    for part, before in kept:
        values[part] = before

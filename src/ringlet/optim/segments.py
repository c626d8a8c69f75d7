"""Where each parameter lies in a flat buffer, for optimizers that treat parameters one by one.

Element-wise optimizers need none of this: for them a flat buffer is just numbers, unless parts of it learn at rates of
their own, later than others, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, Protocol

from ringlet.errors import UsageError

NEVER = 1 << 62
"""The first step of what does not learn at all."""


class Pace(NamedTuple):
    """How a parameter learns: the factor of its learning rate, and the first step that changes it."""

    rate: float = 1.0
    first_step: int = 1


USUAL = Pace()


@dataclass(frozen=True)
class Segment:
    """One parameter array inside a flat slice: elements ``start … stop - 1`` of that slice.

    ``role`` is the parameter's role in its layer (weight, bias, scale, shift). ``whole`` is the number of elements of
    the entire parameter; a segment that holds fewer was cut by the border of a slice. 0 stands for ``stop - start``.
    Steps before ``pace.first_step`` leave the parameter and the optimizer's state of it alone.
    """

    start: int
    stop: int
    name: str
    role: str = "weight"
    whole: int = 0
    pace: Pace = USUAL

    @property
    def size(self) -> int:
        """The number of elements in this slice."""
        return self.stop - self.start

    @property
    def is_cut(self) -> bool:
        """Whether part of the parameter lies outside the slice."""
        return self.whole > self.size


class SegmentNorms(NamedTuple):
    """Euclidean norms over one *entire* parameter array and its gradient."""

    parameters: float
    gradients: float


class _Parameter(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def size(self) -> int: ...


def segments_of(parameters: Iterable[_Parameter], paces: Mapping[str, Pace] | None = None) -> tuple[Segment, ...]:
    """The segments of a whole flat buffer that holds ``parameters`` (``ModelSpec.parameters``) one after the other.

    ``paces`` has those that learn in another way than usual, by name.
    """
    segments = []
    start = 0
    for parameter in parameters:
        pace = (paces or {}).get(parameter.name, USUAL)
        segments.append(Segment(start, start + parameter.size, parameter.name, parameter.role, pace=pace))
        start += parameter.size
    return tuple(segments)


class Stretch(NamedTuple):
    """Neighbouring segments that learn alike: their elements in the slice, and the segments counted from its start."""

    elements: slice
    segments: tuple[Segment, ...]
    pace: Pace


def stretches(segments: Sequence[Segment], step: int) -> list[Stretch] | None:
    """What ``step`` changes, where not all of it learns as usual; None if all does."""
    if all(segment.pace is USUAL or segment.pace == USUAL for segment in segments):
        return None
    found = []
    for pace, group in groupby(segments, lambda segment: segment.pace):
        own = list(group)
        if pace.first_step <= step:
            start, stop = own[0].start, own[-1].stop
            found.append(Stretch(slice(start, stop), cut_segments(own, start, stop), pace))
    return found


def resting(segments: Iterable[Segment], step: int) -> list[slice]:
    """The elements that ``step`` does not change."""
    return [slice(segment.start, segment.stop) for segment in segments if segment.pace.first_step > step]


def cut_segments(segments: Iterable[Segment], start: int, stop: int) -> tuple[Segment, ...]:
    """The segments of the slice ``start:stop`` of a flat buffer, counted from the slice's first element.

    Parameters that cross a border of the slice are cut and remember how long they are as a whole.
    """
    return tuple(
        replace(
            segment,
            start=max(segment.start, start) - start,
            stop=min(segment.stop, stop) - start,
            whole=segment.whole or segment.size,
        )
        for segment in segments
        if segment.start < stop and segment.stop > start
    )


def check_tiling(segments: Sequence[Segment], size: int, owner: str) -> None:
    """Raise unless ``segments`` cover ``size`` elements in order, without gaps and overlaps."""
    position = 0
    for segment in segments:
        if segment.start != position or segment.stop <= segment.start:
            raise UsageError(
                f"{owner}: segment '{segment.name}' covers {segment.start}:{segment.stop}, expected it to begin at "
                f"{position} and not to be empty; pass the segments of the slice in order (see cut_segments)"
            )
        position = segment.stop
    if position != size:
        raise UsageError(
            f"{owner} treats each parameter array by itself: its segments cover {position} of {size} elements; "
            "pass segments=segments_of(spec.parameters), cut to the slice with cut_segments"
        )

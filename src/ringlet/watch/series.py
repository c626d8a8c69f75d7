"""A curve that never has more points than a screen shows."""

from __future__ import annotations

from typing import final

MAX_POINTS = 4000
"""More than the pixels of a wide screen, with room to grow before the next thinning."""


@final
class Series:
    """Points by rising ``x``. When there are too many, each four neighbours give way to their lowest and highest.

    So peaks stay, whatever the number of points. ``generation`` changes whenever older points do.
    """

    def __init__(self, max_points: int = MAX_POINTS) -> None:
        self.x: list[float] = []
        self.y: list[float | None] = []
        self.generation = 0
        self._max_points = max_points

    def add(self, x: float | None, y: float | None) -> None:
        """Append a point; ``None`` as y is a gap. What does not lie to the right of the last point is left out."""
        if x is None or (self.x and x <= self.x[-1]):
            return
        self.x.append(x)
        self.y.append(y)
        if len(self.x) > self._max_points:
            self._thin()

    def _thin(self) -> None:
        x, y = [], []
        for start in range(0, len(self.x), 4):
            for place in _extremes(self.y[start : start + 4]):
                x.append(self.x[start + place])
                y.append(self.y[start + place])
        self.x, self.y = x, y
        self.generation += 1


def _extremes(values: list[float | None]) -> tuple[int, ...]:
    """Where the lowest and the highest of some values are, in order; of gaps alone the first."""
    known = [value for value in values if value is not None]
    if not known:
        return (0,)
    lowest, highest = values.index(min(known)), values.index(max(known))
    return (lowest,) if lowest == highest else (min(lowest, highest), max(lowest, highest))

"""What events say in numbers: names and values at a step, the same for all trackers.

====================  ======================================================================================
``step/NAME``         loss and metrics of one batch
``train/NAME``        … of an epoch, on training data
``val/NAME``          … on validation data
``test/NAME``         … on test data, before and after training
``learning_rate``     of every step
``samples_per_second``  of every epoch, training alone
``epoch``             how many are finished
``time/PHASE``        seconds of an epoch, mean over ranks (:data:`ringlet.timeline.PHASES`)
``staleness/mean``    … and ``staleness/max``: of an epoch's gradients, where workers do not wait for each other
====================  ======================================================================================
"""

from __future__ import annotations

import math
from typing import final

from ringlet.training.events import (
    EpochFinished,
    Evaluated,
    Event,
    PhasesMeasured,
    RunResumed,
    StalenessMeasured,
    StepFinished,
)

Values = dict[str, float]


@final
class Points:
    """Turns events into values; remembers the step, which some events do not tell."""

    def __init__(self) -> None:
        self.step = 0

    def of(self, event: Event) -> Values:
        """The values of an event at :attr:`step`; empty for events without any. Values that are not finite are kept."""
        match event:
            case RunResumed():
                self.step = event.step
            case StepFinished():
                self.step = event.step
                return {**_named("step", event.figures), "learning_rate": event.learning_rate}
            case EpochFinished():
                self.step = event.step
                return _of_epoch(event)
            case Evaluated():
                return _named("test", event.figures)
            case PhasesMeasured():
                return _of_phases(event)
            case StalenessMeasured():
                return {"staleness/mean": event.mean, "staleness/max": float(event.max)}
        return {}


def finite(values: Values) -> Values:
    """Without NaN and infinity, for tools that cannot keep them."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _named(kind: str, figures: object) -> Values:
    assert hasattr(figures, "items")
    return {f"{kind}/{name}": float(value) for name, value in figures.items()}


def _of_epoch(event: EpochFinished) -> Values:
    validated = {name[4:]: value for name, value in event.figures.items() if name.startswith("val_")}
    trained = {name: value for name, value in event.figures.items() if not name.startswith("val_")}
    values = {**_named("train", trained), **_named("val", validated)}
    return {**values, "samples_per_second": event.samples_per_second, "epoch": float(event.epoch)}


def _of_phases(event: PhasesMeasured) -> Values:
    num_ranks = max(len(event.seconds), 1)
    sums = [sum(own[place] for own in event.seconds) for place in range(len(event.phases))]
    return {f"time/{phase}": total / num_ranks for phase, total in zip(event.phases, sums, strict=True)}

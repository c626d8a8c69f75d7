"""The learning-rate range test: one short training with an ever larger rate, and the rate that its losses suggest.

The rate grows by the same factor after every step (schedule ``range_test``). The losses are smoothed over neighbours on
both sides, so that the curve is not late; the suggestion is where it falls fastest, well before it is lowest. Nothing
of what is learned is kept.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.bench.plotting import COLOURS, Plot, can_draw, make_figure
from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import Dataset
from ringlet.errors import ConfigError, DivergedError
from ringlet.io.disk import write_whole
from ringlet.optim.schedules.rates import RangeTest
from ringlet.training.components import make_dataset
from ringlet.training.events import Event, StepFinished
from ringlet.training.observers import Control, Observers
from ringlet.training.session import Session

START, END, STEPS = 1e-6, 10.0, 100
RESULTS, PICTURE, BEST = "range_test.json", "range_test.png", "best.toml"
FORMAT = 1
_SMOOTH_SHARE = 0.03
"""The width of the smoothing, as a share of all steps."""
_EXPLODED = 4.0
"""Times the best running loss at which there is nothing more to learn."""
_DECAY = 0.9
"""Of the running loss."""
_LEAST_POINTS = 10
_LEAST_FALL, _LEAST_SHARE = 2.0, 1e-3
"""How many times its noise, and by which share of itself, the loss must fall to suggest anything."""
_SAFETY = 3.0
"""The suggestion is at least so many times smaller than the rate at which the loss is lowest."""


@dataclass(frozen=True)
class Findings:
    """Losses by learning rate, as given to the optimizer's option, and what they suggest."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggestion: float | None
    """Where the loss falls fastest; None if it does not fall."""
    lowest: float | None
    """Where the loss is lowest: a larger rate is too large."""
    ended: str
    """Why the test ended: all steps, or what went wrong at the last rate."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"format": FORMAT, **asdict(self)}


def range_test(
    config: RunConfig,
    *,
    start: float = START,
    end: float = END,
    steps: int = STEPS,
    dataset: Dataset | None = None,
    communicator: Communicator | None = None,
) -> Findings:
    """Train ``steps`` steps with a rate from ``start`` to ``end``, and find out which rate to take.

    In a program on several workers every worker must call.
    """
    if not (0 < start < end and math.isfinite(end)):
        raise ConfigError(f"a range test from {start:g} to {end:g}: expected two numbers above 0, the second larger")
    if steps < _LEAST_POINTS:
        raise ConfigError(f"a range test of {steps} steps: expected at least {_LEAST_POINTS}")
    data = make_dataset(config) if dataset is None else dataset
    rule = RangeTest(end_lr=end, steps=steps)
    own = config.replace(learning_rate=start, schedule=(rule,), checkpoint_every="never", resume=None, stop_after=None)
    session = Session(own, dataset=replace(data, validation=None), communicator=communicator)
    factor = session.optimizer.learning_rate / start  # what learning_rate_scaling multiplies by
    control = Control()
    seen = _Recorder(control, steps)
    ended = ""
    try:
        session.train(steps, Observers([seen], control))
    except DivergedError as error:
        ended = str(error).splitlines()[0]
    return analyse([rate / factor for rate in seen.rates], seen.losses, ended or seen.ended)


@final
class _Recorder:
    """Keeps rates and losses, and asks to stop when there is nothing more to learn."""

    def __init__(self, control: Control, steps: int) -> None:
        self._control, self._steps = control, steps
        self.rates: list[float] = []
        self.losses: list[float] = []
        self._running, self._best = 0.0, math.inf
        self.ended = "all steps were taken"
        self._is_over = False
        """From then on ranks may still take a step, until all have heard of it."""

    def __call__(self, event: Event) -> None:
        """Take note of a step."""
        if not isinstance(event, StepFinished) or self._is_over:
            return
        loss = event.figures["loss"]
        self.rates.append(event.learning_rate)
        self.losses.append(loss)
        count = len(self.losses)
        self._running = _DECAY * self._running + (1 - _DECAY) * loss
        running = self._running / (1 - _DECAY**count)
        self._best = min(self._best, running) if count > _LEAST_POINTS // 2 else self._best
        if running > _EXPLODED * self._best:
            self.ended = f"the loss exploded at a learning rate of {event.learning_rate:.2g}"
            self._stop()
        elif count == self._steps:
            self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._control.interrupt(self.ended)


def analyse(rates: Sequence[float], losses: Sequence[float], ended: str = "") -> Findings:
    """What a curve of losses suggests."""
    values = np.array(losses, np.float64)
    smoothed = smooth(values)
    nothing = Findings(tuple(rates), tuple(losses), tuple(smoothed.tolist()), None, None, ended)
    if len(values) < _LEAST_POINTS:
        return nothing
    lowest = int(smoothed.argmin())
    noise = float(np.median(np.abs(values - smoothed)[: lowest + 1]))
    least = max(_LEAST_FALL * noise, _LEAST_SHARE * abs(float(smoothed[0])))
    if lowest < 2 or smoothed[0] - smoothed[lowest] <= least:
        return nothing
    slopes = np.gradient(smoothed, np.log(np.array(rates)))
    steepest = rates[int(slopes[: lowest + 1].argmin())]
    return replace(nothing, suggestion=_short(min(steepest, rates[lowest] / _SAFETY)), lowest=_short(rates[lowest]))


def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over neighbours with the weights of a bell curve; at the ends over those that there are."""
    width = max(_SMOOTH_SHARE * len(values), 1.0)
    places = np.arange(len(values))
    weights = np.exp(-0.5 * ((places[:, None] - places[None, :]) / width) ** 2)
    return np.asarray(weights @ values / weights.sum(axis=1), np.float64)


def _short(rate: float) -> float:
    """Two digits: a range test is not more exact."""
    return float(f"{rate:.2g}")


def write_findings(folder: Path, config: RunConfig, found: Findings) -> list[Path]:
    """Write the numbers, the picture (with Matplotlib) and, if there is a suggestion, its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / RESULTS]
    write_whole(written[0], (json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n").encode())
    if can_draw():
        plot(found).save(folder / PICTURE)
        written.append(folder / PICTURE)
    if found.suggestion is not None:
        write_whole(folder / BEST, config.replace(learning_rate=found.suggestion).to_toml().encode())
        written.append(folder / BEST)
    return written


def plot(found: Findings) -> Plot:
    """Losses over the rate, with the suggestion."""
    return Plot("range-test", "Loss of every step over its learning rate.", partial(_draw, found))


def _draw(found: Findings, ink: str) -> Any:
    figure, (axes,) = make_figure(4.4)
    axes.plot(found.rates, found.losses, ".", color=COLOURS[0], alpha=0.35, ms=5, label="loss of a step")
    axes.plot(found.rates, found.smoothed, color=COLOURS[0], lw=2, label="smoothed")
    if found.suggestion is not None:
        axes.axvline(found.suggestion, color=COLOURS[1], ls="--", label=f"suggested: {found.suggestion:g}")
    axes.set(xscale="log", xlabel="learning rate", ylabel="loss", title="Learning-rate range test")
    smoothed = np.array(found.smoothed)
    top = max(float(smoothed[0]), float(np.median(smoothed))) * 1.5
    axes.set_ylim(max(0.0, 0.9 * float(smoothed.min())), top if top > smoothed.min() else None)
    axes.grid(visible=True, alpha=0.15)
    axes.legend(frameon=False, fontsize=9)
    axes.tick_params(color=ink)
    return figure

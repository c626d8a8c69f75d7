"""One run as a page shows it: curves, times of ranks, remarks; built from events, of bounded size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from ringlet.training.events import moment, number, whole
from ringlet.training.run_directory import EVENTS
from ringlet.training.run_lock import is_held
from ringlet.watch import run_files
from ringlet.watch.evaluation import LastEvaluation
from ringlet.watch.notes import Notes, describe
from ringlet.watch.ranks import RankTimes, Staleness
from ringlet.watch.run_files import LogFollower, count, table, text

MAX_POINTS = 4000
"""More than the pixels of a wide screen, with room to grow before the next thinning."""
MAX_SERIES = 120
THROUGHPUT_SECONDS = 0.5
"""Steps are counted so long for one point of the curve of samples per second."""
GONE, QUIET_SECONDS = "gone", 10.0
"""The state of a run that no one writes any more and that has not said that it ended, after so long without news."""
GONE_SECONDS = 120.0
"""After so long it is not expected back: a launcher that starts workers again waits a minute at most."""
MOMENTS = ("before", "after", "only")
"""When test data are evaluated; other texts are left out, or a log could make a page of any length."""
_ABOUT = ("model", "dataset", "communicator", "engine", "device", "kernels")
_ABOUT_NUMBERS = (
    "num_parameters",
    "num_train_samples",
    "num_validation_samples",
    "global_batch_size",
    "num_workers",
    "num_machines",
    "num_shards",
)
_UNFINISHED = ("running", "validating", "trained")
_OPTIONS = ("strategy", "optimizer", "dtype", "seed")


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


@final
class RunView:
    """Follows a run directory; :meth:`look` reads what is new. Not for several threads at once."""

    def __init__(self, path: Path, *, max_points: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.path, self.name = path, text(path.resolve().name, 200)
        self._clock = clock
        self._max_points = max_points
        self._log = LogFollower(path / EVENTS)
        self.evaluation = LastEvaluation(path)
        self.generation = 0
        """Changes when the log was cut or replaced: what a page has is void then."""
        self._begin()

    def _begin(self) -> None:
        self.series: dict[str, Series] = {}
        self.ranks, self.staleness, self.notes = RankTimes(), Staleness(), Notes()
        self.about: dict[str, Any] = {}
        self.tests: dict[str, dict[str, float | None]] = {}
        self.status: dict[str, Any] = {"state": "waiting", "num_broken": 0, "num_restarts": 0}
        self._offset: float | None = None
        self._elapsed = self._last_active = 0.0
        self._mark: tuple[float, int] | None = None

    def look(self) -> bool:
        """Take note of new events; whether there is more to read at once."""
        news = self._log.look()
        if news.started_over:
            self.generation += 1
            self._begin()
        for record in news.records:
            self._take(record)
        if not news.is_behind:
            self._check_writer()
        self.status["num_broken"] += news.num_broken
        self.status["read_share"] = self._log.position / max(self._log.num_bytes, 1)
        return news.is_behind

    @property
    def has_ended(self) -> bool:
        """Whether the run said that nothing follows."""
        return bool(self.status.get("outcome"))

    @property
    def is_lost(self) -> bool:
        """Whether the run's process is gone without a word, for so long that no launcher will start it again."""
        return self.status["state"] == GONE and self._quiet_seconds() >= GONE_SECONDS

    def _quiet_seconds(self) -> float:
        latest = moment(self.status.get("time"))
        return 0.0 if latest is None else self._clock() - latest

    def _check_writer(self) -> None:
        """Note that no process writes the run any more: one that was killed could not say so."""
        if self.status["state"] not in _UNFINISHED or self._quiet_seconds() < QUIET_SECONDS:
            return
        if is_held(self.path) is False:
            self.status["state"] = GONE

    def checkpoints(self) -> list[dict[str, Any]]:
        """What is in the run directory now."""
        return run_files.checkpoints(self.path)

    def pictures(self) -> list[int]:
        """Epochs whose validation was drawn."""
        return run_files.pictures(self.path)

    def _take(self, record: Mapping[str, Any]) -> None:
        time = moment(record.get("time"))
        if time is not None:
            if self._offset is None:
                self._offset = time - self._elapsed
            self._elapsed = max(self._elapsed, time - self._offset)
            self.status["time"], self.status["elapsed"] = time, self._elapsed
        if self.status["state"] == GONE:
            self.status["state"] = "running"
        handler = getattr(self, f"_on_{record['event']}", None)
        if handler is not None:
            handler(record)
        self.notes.add(time, describe(record))

    def add(self, name: str, x: float | None, y: float | None) -> None:
        """A point of a curve."""
        series = self.series.get(name)
        if series is None:
            if len(self.series) >= MAX_SERIES:
                return
            series = self.series[name] = Series() if self._max_points is None else Series(self._max_points)
        series.add(x, y)

    def _on_run_started(self, record: Mapping[str, Any]) -> None:
        options = table(record.get("config"))
        self.about = {name: text(record.get(name), 200) for name in _ABOUT}
        self.about |= {name: count(record.get(name)) for name in _ABOUT_NUMBERS}
        for name in _OPTIONS:
            value = options.get(name)
            self.about[name] = text(value, 100) or (str(count(value)) if number(value) is not None else "")
        self.status |= {"state": "running", "num_epochs": count(record.get("num_epochs"))}

    def _on_run_resumed(self, record: Mapping[str, Any]) -> None:
        """The time in which nothing ran is not counted."""
        time = moment(record.get("time"))
        if time is not None and "elapsed" in self.status:
            before = self._last_active
            self._offset, self._elapsed = time - before, before
        self.about["num_workers"] = count(record.get("num_workers"))
        self.about["engine"] = text(record.get("engine"), 200)
        self.status |= {"state": "running", "elapsed": self._elapsed, "num_epochs": count(record.get("num_epochs"))}

    def _on_run_restarted(self, record: Mapping[str, Any]) -> None:
        self.status["num_restarts"] = max(self.status["num_restarts"], count(record.get("number")))

    def _on_epoch_started(self, record: Mapping[str, Any]) -> None:
        self.status |= {"state": "running", "epoch": count(record.get("epoch"))}
        self.status |= {"num_epochs": count(record.get("num_epochs")), "num_steps": count(record.get("num_steps"))}
        self.status["step_in_epoch"] = count(record.get("step_in_epoch"))
        time = moment(record.get("time"))
        self._mark = None if time is None else (time, 0)

    _on_epoch_resumed = _on_epoch_started

    def _on_step_finished(self, record: Mapping[str, Any]) -> None:
        step, time = whole(record.get("step")), moment(record.get("time"))
        for name, value in table(record.get("figures")).items():
            self.add(f"step:{text(name, 60)}", step, number(value))
        self.add("rate", step, number(record.get("learning_rate")))
        done, epoch = count(record.get("step_in_epoch")), count(record.get("epoch"))
        status = self.status
        status["step"], status["epoch"], status["step_in_epoch"] = step or 0, epoch, done
        self._note_place(step, epoch - 1 + done / max(self.status.get("num_steps", 0), done, 1))
        if time is not None and self._mark is not None:
            start, samples = self._mark[0], self._mark[1] + count(record.get("num_samples"))
            self._mark = (start, samples)
            if time - start >= THROUGHPUT_SECONDS:
                self.add("throughput:steps", step, samples / (time - start))
                self._mark = (time, 0)

    def _note_place(self, step: float | None, epoch: float) -> None:
        """For the other axes: in which epoch and after which time a step was."""
        self.add("axis:epoch", step, epoch)
        self.add("axis:time", step, self._elapsed)
        self._last_active = self._elapsed

    def _on_validation_started(self, _: Mapping[str, Any]) -> None:
        self.status["state"] = "validating"

    def _on_epoch_finished(self, record: Mapping[str, Any]) -> None:
        step = whole(record.get("step"))
        for name, value in table(record.get("figures")).items():
            kind, bare = ("val", name[4:]) if name.startswith("val_") else ("train", name)
            self.add(f"{kind}:{text(bare, 60)}", step, number(value))
        self.add("throughput:epochs", step, number(record.get("samples_per_second")))
        self.status |= {"state": "running", "epochs_done": count(record.get("epoch")), "step": step or 0}
        self._note_place(step, count(record.get("epoch")))

    def _on_phases_measured(self, record: Mapping[str, Any]) -> None:
        for name, share in self.ranks.take(record).items():
            self.add(f"share:{name}", whole(self.status.get("step")), share)

    def _on_staleness_measured(self, record: Mapping[str, Any]) -> None:
        mean, most = self.staleness.take(record)
        self.add("staleness:mean", whole(self.status.get("step")), mean)
        self.add("staleness:max", whole(self.status.get("step")), most)

    def _on_evaluated(self, record: Mapping[str, Any]) -> None:
        found = {text(name, 60): number(value) for name, value in list(table(record.get("figures")).items())[:20]}
        if record.get("moment") in MOMENTS:
            self.tests[record["moment"]] = found

    def _on_training_finished(self, _: Mapping[str, Any]) -> None:
        self.status["state"] = "trained"

    def _on_run_ended(self, record: Mapping[str, Any]) -> None:
        outcome = text(record.get("outcome"), 40) or "ended"
        self.status |= {"state": outcome, "outcome": outcome, "reason": text(record.get("reason"))}

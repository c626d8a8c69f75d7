"""Callbacks: whatever wants to know what happens in a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, final

from ringlet.io.disk import Saving
from ringlet.training.events import EpochFinished, Event, ModelSaved
from ringlet.training.interrupts import Control


class Callback(Protocol):
    """Called with every event, in order. A text that it returns ends training after the epoch, for that reason."""

    def __call__(self, event: Event) -> str | None:
        """Take note of an event."""


@final
class Announcer:
    """Passes events to callbacks and their wishes to the run's control."""

    def __init__(self, callbacks: Iterable[Callback], control: Control) -> None:
        self._callbacks = tuple(callbacks)
        self._control = control

    def __call__(self, event: Event) -> None:
        """Tell everybody."""
        for callback in self._callbacks:
            reason = callback(event)
            if isinstance(reason, str):
                self._control.stop(reason)


@final
class SaveModel:
    """Writes the model after every epoch, and apart from it the best one when the schedule says so."""

    def __init__(
        self, save: Callable[[Path], None], path: Path, best_path: Path | None = None, saving: Saving | None = None
    ) -> None:
        self._save, self._path, self._best_path = save, path, best_path
        self._saving = Saving(warnings.warn) if saving is None else saving
        self.saved: list[ModelSaved] = []

    @property
    def epoch(self) -> int | None:
        """After which epoch the file holds the model; None if it was not written yet."""
        return next((own.epoch for own in reversed(self.saved) if own.path == str(self._path)), None)

    def __call__(self, event: Event) -> None:
        """Save after an epoch; every file is complete or as it was before."""
        if isinstance(event, EpochFinished):
            self.write(event.epoch, event.step)
            if event.is_best and self._best_path is not None:
                self._write(self._best_path, event.epoch, event.step)

    def write(self, epoch: int, step: int) -> bool:
        """Write the model as it is now; whether it is on disk. A file that holds just that stays."""
        wanted = ModelSaved(str(self._path), epoch, step)
        known = any((own.path, own.step) == (wanted.path, step) for own in self.saved[-2:])
        return known or self._write(self._path, epoch, step)

    def _write(self, path: Path, epoch: int, step: int) -> bool:
        done = self._saving.attempt(path.name, lambda: self._save(path), is_needed=True)
        if done:
            self.saved.append(ModelSaved(str(path), epoch, step))
        return done

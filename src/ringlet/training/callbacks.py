"""Callbacks: whatever wants to know what happens in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, final

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

    def __init__(self, save: Callable[[Path], None], path: Path, best_path: Path | None = None) -> None:
        self._save, self._path, self._best_path = save, path, best_path
        self.saved: list[ModelSaved] = []

    def __call__(self, event: Event) -> None:
        """Save after an epoch; every file is complete or not there."""
        if isinstance(event, EpochFinished):
            self._write(self._path, event)
            if event.is_best and self._best_path is not None:
                self._write(self._best_path, event)

    def _write(self, path: Path, event: EpochFinished) -> None:
        self._save(path)
        self.saved.append(ModelSaved(str(path), event.epoch, event.step))

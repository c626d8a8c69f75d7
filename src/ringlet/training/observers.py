"""Observers of a run: what they are told, what they may ask for, and how a wish to stop becomes a decision of all."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ringlet import output_streams, signals
from ringlet.comm.contract import Communicator
from ringlet.io.disk import Saving
from ringlet.training.events import EpochFinished, Event, ModelSaved, OutputLost


class Wish(NamedTuple):
    """What is wanted of a run at one moment."""

    reason: str | None = None
    interrupted: bool = False
    """After the current step, rather than after the epoch."""


class Control:
    """A run's switch: callbacks and signals ask for a stop, the loop looks after every step.

    A signal may come between any two instructions, so code that acts on a wish looks once (:attr:`wish`) and acts on
    what it saw: a second look may tell something else.
    """

    def __init__(self) -> None:
        self._stop: str | None = None
        self._interruption: str | None = None

    @property
    def wish(self) -> Wish:
        """What is wanted now."""
        interruption = self._interruption
        return Wish(self._stop, False) if interruption is None else Wish(interruption, True)

    @property
    def interrupted(self) -> bool:
        """Whether training is to end after the current step."""
        return self.wish.interrupted

    def stop(self, reason: str) -> None:
        """End training after the current epoch."""
        self._stop = self._stop or reason

    def interrupt(self, reason: str) -> None:
        """End training after the current step."""
        self._interruption = reason


class Stop(NamedTuple):
    """Why training ends before its last epoch, as all ranks agreed."""

    reason: str
    interrupted: bool
    """In the middle of an epoch, by a signal."""


def interruption(wish: Wish) -> Stop:
    """The stop of a rank that was interrupted, or that has heard of it."""
    return Stop(wish.reason if wish.interrupted and wish.reason else "another worker was interrupted", True)


def agree_on_stopping(comm: Communicator, control: Control) -> Stop | None:
    """What all ranks do about the wishes of each: an interruption comes first, then the lowest rank's reason.

    Every rank must call. A signal may change ``control`` at any moment, on one rank only: so ranks act on what was
    agreed on, never on their own control alone.
    """
    own = control.wish
    told = (b"!" if own.interrupted else b".") + (own.reason or "").encode()
    wishes = [(wish[:1] == b"!", wish[1:].decode()) for wish in comm.allgather_bytes(told)]
    if any(interrupted for interrupted, _ in wishes):
        return interruption(own)
    reason = next((reason for _, reason in wishes if reason), None)
    return None if reason is None else Stop(reason, False)


@contextmanager
def interruptible(control: Control) -> Iterator[None]:
    """Within: a signal that asks to leave lets the current step finish; one that insists raises KeyboardInterrupt.

    See :mod:`ringlet.signals`. Signal handlers belong to the main thread; elsewhere this changes nothing.
    """

    def handle(number: signal.Signals, insists: bool) -> None:
        if insists:
            raise KeyboardInterrupt
        control.interrupt(f"{number.name} received")

    with signals.handled(handle):
        yield


class Callback(Protocol):
    """Called with every event, in order. A text that it returns ends training after the epoch, for that reason."""

    def __call__(self, event: Event) -> str | None:
        """Take note of an event."""


class RankObserver(ABC):
    """An observer for which ranks need each other: every rank has one, and all call its hooks at the same place."""

    @abstractmethod
    def after_step(self) -> None:
        """A step was taken."""

    @abstractmethod
    def take_outputs(self, indices: NDArray[np.int64], outputs: NDArray[Any]) -> None:
        """Outputs of this rank's samples at ``indices`` of the validation data; the one hook that is no meeting."""

    @abstractmethod
    def after_validation(self, epoch: int) -> None:
        """All validation samples of an epoch have been taken, by some rank."""

    @abstractmethod
    def after_epoch(self, *, is_best: bool) -> None:
        """An epoch is finished, its metrics are known."""

    @abstractmethod
    def finish(self) -> None:
        """Training ends: keep what was reached, and do not return before it is on disk."""

    @abstractmethod
    def abandon(self) -> None:
        """Training ends with an error, perhaps on this rank alone."""


Observer: TypeAlias = Callback | RankObserver


@final
class Observers:
    """All observers of a run on this rank: tells callbacks what happens, and the run's control what they wish.

    The hooks of those :attr:`of_ranks` are called by the loop, on all ranks in the same order.
    """

    def __init__(self, observers: Iterable[Observer] = (), control: Control | None = None) -> None:
        self.control = Control() if control is None else control
        observers = tuple(observers)
        self._callbacks = [own for own in observers if not isinstance(own, RankObserver)]
        self.of_ranks = [own for own in observers if isinstance(own, RankObserver)]
        self._told_losses: set[int] = set()

    def __call__(self, event: Event) -> None:
        """Tell every callback; before it what was lost of the output of this process, which a log can still tell."""
        if output_streams.losses:
            self._tell_losses()
        self._tell(event)

    def _tell_losses(self) -> None:
        fresh = {stream: loss for stream, loss in output_streams.losses.items() if stream not in self._told_losses}
        self._told_losses |= fresh.keys()
        for loss in fresh.values():
            self._tell(OutputLost(loss.stream, loss.reason))

    def _tell(self, event: Event) -> None:
        for callback in self._callbacks:
            reason = callback(event)
            if isinstance(reason, str):
                self.control.stop(reason)

    def take_outputs(self, indices: NDArray[np.int64], outputs: NDArray[Any]) -> None:
        """Outputs of this rank's validation samples."""
        for observer in self.of_ranks:
            observer.take_outputs(indices, outputs)


@final
class ModelFiles:
    """Writes the model after every epoch, and apart from it the best one when the schedule says so."""

    def __init__(
        self, save: Callable[[Path], None], path: Path, best_path: Path, last_path: Path, saving: Saving
    ) -> None:
        self._save, self.path, self._best_path, self._last_path, self._saving = save, path, best_path, last_path, saving
        self.saved: list[ModelSaved] = []

    @property
    def epoch(self) -> int | None:
        """After which epoch the file holds the model; None if it was not written yet."""
        return next((own.epoch for own in reversed(self.saved) if own.path == str(self.path)), None)

    def __call__(self, event: Event) -> None:
        """Save after an epoch; every file is complete or as it was before."""
        if isinstance(event, EpochFinished):
            self.write(event.epoch, event.step)
            if event.is_best:
                self._write(self._best_path, event.epoch, event.step)

    def write(self, epoch: int, step: int) -> bool:
        """Write the model as it is now; whether it is on disk. A file that holds just that stays."""
        wanted = ModelSaved(str(self.path), epoch, step)
        known = any((own.path, own.step) == (wanted.path, step) for own in self.saved[-2:])
        return known or self._write(self.path, epoch, step)

    def write_last(self, epoch: int, step: int) -> bool:
        """Write the model as it is now beside the file that the best one is going to replace."""
        return self._write(self._last_path, epoch, step)

    def replace(self, epoch: int, step: int) -> bool:
        """Write the model of an earlier epoch; whether it is on disk."""
        return self._write(self.path, epoch, step)

    def _write(self, path: Path, epoch: int, step: int) -> bool:
        done = self._saving.attempt(path.name, lambda: self._save(path), is_needed=True)
        if done:
            self.saved.append(ModelSaved(str(path), epoch, step))
        return done

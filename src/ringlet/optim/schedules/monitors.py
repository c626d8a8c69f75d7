"""Rules that watch a metric at the end of each epoch. Their memory is a small dict that fits into JSON.

``patience`` is the number of epochs in a row without a better value after which a rule acts. NaN is never better.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple, TypedDict, final

from ringlet.component import option, required
from ringlet.optim.metric_names import is_maximised
from ringlet.optim.schedules.base import Decision, Rule, lowered

WATCHED = "metric to watch; default: val_loss, else loss"


class Memory(TypedDict):
    """What a monitor remembers between epochs."""

    best: float | None
    best_epoch: int | None
    num_bad_epochs: int
    num_reductions: int


class Reading(NamedTuple):
    """A metric's value at the end of an epoch (counted from 0)."""

    epoch: int
    metric: str
    value: float

    def is_better_than(self, best: float | None) -> bool:
        """Whether the value beats ``best``, in the metric's direction; any number beats None."""
        if self.value != self.value:
            return False
        return best is None or (self.value > best if is_maximised(self.metric) else self.value < best)


class Monitor(Rule):
    """A rule with a memory; ``metric`` None means the validation loss, or the training loss without validation."""

    metric: str | None = option(None, WATCHED, min_length=1)

    @abstractmethod
    def observe(self, reading: Reading, memory: Memory) -> tuple[Memory, Decision]:
        """The memory after this epoch, and what to do."""


class Keeper(Monitor):
    """A monitor whose best epoch's weights are kept, and are those of the run when it ends."""


def fresh_memory() -> Memory:
    """The memory before the first epoch."""
    return Memory(best=None, best_epoch=None, num_bad_epochs=0, num_reductions=0)


def _remember(reading: Reading, memory: Memory) -> Memory:
    if reading.is_better_than(memory["best"]):
        return {**memory, "best": float(reading.value), "best_epoch": reading.epoch, "num_bad_epochs": 0}
    return {**memory, "num_bad_epochs": memory["num_bad_epochs"] + 1}


def _stagnation(reading: Reading, memory: Memory) -> str:
    best = "it never was a number" if memory["best"] is None else f"best {memory['best']:.6g}"
    after = "" if memory["best_epoch"] is None else f" after epoch {memory['best_epoch'] + 1}"
    num_epochs = memory["num_bad_epochs"]
    return f"{reading.metric} did not improve for {num_epochs} epoch{'s' * (num_epochs != 1)} ({best}{after})"


@final
class ReduceOnPlateau(Monitor):
    """Multiply the learning rate by ``factor`` whenever ``metric`` has not improved for ``patience`` epochs."""

    name: ClassVar[str] = "reduce_lr_on_plateau"
    metric: str | None = option(None, WATCHED, min_length=1)
    factor: float = option(0.1, "factor of the learning rate", gt=0, lt=1)
    patience: int = option(5, "epochs without improvement before the reduction", unit="epochs", ge=1)
    min_lr: float = option(0.0, "never below this learning rate", ge=0)

    def adjust(self, learning_rate: float, memory: Memory) -> float:
        """``lr * factor^(number of reductions)``, at least ``min_lr``."""
        return lowered(learning_rate, self.factor ** memory["num_reductions"], self.min_lr)

    def observe(self, reading: Reading, memory: Memory) -> tuple[Memory, Decision]:
        """Reduce when patience has run out, then count anew."""
        memory = _remember(reading, memory)
        if memory["num_bad_epochs"] < self.patience:
            return memory, Decision()
        message = f"{_stagnation(reading, memory)}: the learning rate is multiplied by {self.factor:g}"
        reduced: Memory = {**memory, "num_bad_epochs": 0, "num_reductions": memory["num_reductions"] + 1}
        return reduced, Decision(factor=self.factor, messages=(message,))


@final
class EarlyStopping(Keeper):
    """Stop when ``metric`` has not improved for ``patience`` epochs; the weights of its best epoch are kept."""

    name: ClassVar[str] = "early_stopping"
    metric: str | None = option(None, WATCHED, min_length=1)
    patience: int = option(10, "epochs without improvement before the run stops", unit="epochs", ge=1)

    def observe(self, reading: Reading, memory: Memory) -> tuple[Memory, Decision]:
        """Stop when patience has run out."""
        memory = _remember(reading, memory)
        if memory["num_bad_epochs"] < self.patience:
            return memory, Decision(save=memory["best_epoch"] == reading.epoch)
        return memory, Decision(stop_reason=f"early stopping: {_stagnation(reading, memory)}")


@final
class StopAtLoss(Monitor):
    """Stop as soon as ``metric`` reaches ``threshold``: from above for a loss, from below for an accuracy."""

    name: ClassVar[str] = "stop_at_loss"
    metric: str | None = option(None, WATCHED, min_length=1)
    threshold: float = required("stop when the metric has reached this value")

    def observe(self, reading: Reading, memory: Memory) -> tuple[Memory, Decision]:
        """Stop when the threshold is reached."""
        memory = _remember(reading, memory)
        upward = is_maximised(reading.metric)
        if not (reading.value >= self.threshold if upward else reading.value <= self.threshold):
            return memory, Decision()
        reason = f"{reading.metric} {reading.value:.6g} reached {self.threshold:g} after epoch {reading.epoch + 1}"
        return memory, Decision(stop_reason=reason)


@final
class ModelCheckpoint(Keeper):
    """Keep the weights of the best epoch by ``metric``, of those after every ``save_freq`` epochs."""

    name: ClassVar[str] = "model_checkpoint"
    metric: str | None = option(None, "metric whose best weights are kept and used in the end", min_length=1)
    save_freq: int = option(1, "look at it every so many epochs", unit="epochs", ge=1)

    def observe(self, reading: Reading, memory: Memory) -> tuple[Memory, Decision]:
        """Save when this epoch may be saved and beats the best saved one."""
        due = (reading.epoch + 1) % self.save_freq == 0
        if not due or not reading.is_better_than(memory["best"]):
            return {**memory, "num_bad_epochs": memory["num_bad_epochs"] + 1}, Decision()
        return _remember(reading, memory), Decision(save=True)

"""Learning rates: for many ranks, and as multiples of an initial one that change with epochs and batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras

from ringlet.keras.exchange import ArgumentError
from ringlet.named import session
from ringlet.named.horovod import rate_factor, warmup_factor


def scale_learning_rate(learning_rate: float, size: int | None = None, rule: str = "linear") -> float:
    """The learning rate for a global batch ``size`` times as large (default: the number of ranks).

    ``linear``: lr·size (Goyal et al., *Accurate, Large Minibatch SGD*, 2017; with warm-up). ``sqrt``: lr·√size, often
    better for Adam. ``none``: lr.
    """
    return learning_rate * rate_factor(rule, session.collectives().size if size is None else size)


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to initial_lr · multiplier(epoch) from ``start_epoch`` until before ``end_epoch``.

    A constant multiplier m means m^(epoch − start_epoch). With ``staircase`` the rate changes once per epoch; without,
    at every batch, and the multiplier gets fractions of epochs, for which ``steps_per_epoch`` must be known.

    ``momentum_correction``: what momentum has kept is proportional to the old rate, and is scaled along with it
    (Goyal et al., *Accurate, Large Minibatch SGD*, 2017, section 2.1): v ← v · lr_new / lr_old.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0
        self.staircase = staircase
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = float(multiplier)
            self.multiplier = lambda epoch: base ** (epoch - start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Fractions of epochs need the number of steps."""
        if self.steps_per_epoch is None:
            self.steps_per_epoch = (self.params or {}).get("steps")
        if not self.staircase and not self.steps_per_epoch:
            raise ArgumentError(
                "the learning rate shall change within epochs, but their number of steps is not known: expected "
                "steps_per_epoch, or staircase=True"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Set the rate of this epoch."""
        self._epoch = epoch
        if self.staircase and self._is_active():
            self._set(self.multiplier(epoch))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Set the rate of this batch."""
        if not self.staircase and self._is_active():
            self._set(self.multiplier(self._epoch + batch / (self.steps_per_epoch or 1)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Tell the rate."""
        if logs is not None:
            logs["lr"] = _current(self.model.optimizer)

    def _is_active(self) -> bool:
        return self.start_epoch <= self._epoch and (self.end_epoch is None or self._epoch < self.end_epoch)

    def _set(self, factor: float) -> None:
        optimizer = self.model.optimizer
        old, new = _current(optimizer), self.initial_lr * factor
        if old == new:
            return
        _check_settable(optimizer)
        optimizer.learning_rate = new
        if self.momentum_correction and old > 0:
            for kept in _momentums(optimizer):
                kept.assign(kept * (new / old))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from initial_lr / size to initial_lr over the first ``warmup_epochs``, batch by batch.

    ``initial_lr`` is the scaled rate (``scale_learning_rate``), so training begins with that of one rank:
    lr(e) = initial_lr / size · (e (size − 1) / warmup_epochs + 1).
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = session.collectives().size
            reached = epoch + 1.0 / (self.steps_per_epoch or 1)  # the last batch reaches the full rate
            return warmup_factor(reached, warmup_epochs, size)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=max(1, round(warmup_epochs)),
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Tell the rate; after the last epoch of the warm-up rank 0 also does so in words."""
        super().on_epoch_end(epoch, logs)
        is_last = self.end_epoch is not None and epoch == self.end_epoch - 1
        if self.verbose and is_last and session.collectives().rank == 0:
            rate = _current(self.model.optimizer)
            sys.stdout.write(f"\nEpoch {epoch + 1}: the warm-up of the learning rate has reached {rate:g}.\n")


def _current(optimizer: Any) -> float:
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


def _check_settable(optimizer: Any) -> None:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not isinstance(inner._learning_rate, keras.Variable):
        raise ArgumentError(
            f"the learning rate of '{inner.name}' is a schedule of Keras and cannot be set: expected a number, or no "
            "callback that sets it"
        )


def _momentums(optimizer: Any) -> list[Any]:
    """The variables in which SGD and RMSprop keep sums of steps, which contain the learning rate."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    kinds = (keras.optimizers.SGD, keras.optimizers.RMSprop)
    if not inner.built or not isinstance(inner, kinds) or not inner.momentum:
        return []
    found = inner.momentums if isinstance(inner, keras.optimizers.SGD) else inner._momentums
    return [variable for variable in found if variable is not None]

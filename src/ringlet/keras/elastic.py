"""A state of training that survives failures: in memory while ranks live, on disk if they do not.

    import ringlet.keras as hvd

    state = hvd.elastic.KerasState(model, directory="progress", epoch=0)

    @hvd.elastic.run
    def train(state):
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 50)]
        state.model.fit(x, y, initial_epoch=state.epoch, epochs=20, callbacks=callbacks)

    train(state)

If a collective fails on all ranks, training goes on from the last commit. If a process dies, the job ends; started with
``ringlet run --restarts 3``, possibly with another number of ranks, it goes on from the last commit in ``directory``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import keras
import numpy as np

from ringlet.comm.contract import Array
from ringlet.elastic import State as Commits
from ringlet.keras.callbacks.elastic import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from ringlet.keras.collectives import broadcast_object
from ringlet.keras.errors import ArgumentError
from ringlet.keras.exchange import failure
from ringlet.keras.variables import broadcast_variables, model_state
from ringlet.named import session

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

Result = TypeVar("Result")


class KerasState:
    """A model, its optimizer, and values by name: ``state.epoch += 1``. Every rank must make it and call its methods.

    Values are numbers, texts, arrays, and lists and dictionaries of them; those of rank 0 count. With ``directory``
    commits are also written there, by rank 0. ``optimizer`` is needed if it is not the model's own.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self._directory = directory
        self._names = tuple(values)
        self._reset_callbacks: list[Callable[[], None]] = []
        for name, value in values.items():
            if hasattr(self, name):
                raise ArgumentError(f"'{name}' cannot be a value of the state: the name is taken, choose another")
            setattr(self, name, value)
        self._saved: tuple[list[Array], dict[str, Any]] | None = None

    def register_reset_callbacks(self, callbacks: list[Callable[[], None]]) -> None:
        """Functions that are called before training goes on after a failure."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Training is about to go on after a failure."""
        for callback in self._reset_callbacks:
            callback()

    def save(self) -> None:
        """Keep a copy in memory."""
        self._saved = [np.array(keras.ops.convert_to_numpy(v)) for v in self._variables()], self._values()

    def restore(self) -> None:
        """Go back to the last copy in memory; before the first nothing changes."""
        if self._saved is None:
            return
        arrays, values = self._saved
        for variable, array in zip(self._variables(), arrays, strict=True):
            variable.assign(array)
        self._take(values)

    def sync(self) -> None:
        """What rank 0 has, on all ranks, kept as a copy."""
        broadcast_variables(self._variables(), 0)
        self._take(broadcast_object(self._values(), 0))
        self.save()

    def commit(self) -> None:
        """Keep a copy in memory, and on disk if there is a directory; when this returns it is there."""
        self.save()
        if self._directory is not None:
            self._commits(self._directory).commit()

    def check_host_updates(self) -> None:
        """Horovod asks here for new hosts. The ranks of a job stay the same until it is started again."""

    def load(self) -> bool:
        """Take what was last committed to the directory; False, and nothing changes, if there is nothing."""
        if self._directory is None:
            return False
        commits = self._commits(self._directory)
        if not commits.restore():
            return False
        for index, variable in enumerate(self._variables()):
            variable.assign(getattr(commits, f"variable_{index}"))
        self._take({name: getattr(commits, f"value_{name}") for name in self._names})
        return True

    def _commits(self, directory: str | os.PathLike[str]) -> Commits:
        arrays = {f"variable_{i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(self._variables())}
        values = {f"value_{name}": value for name, value in self._values().items()}
        return Commits(directory, **arrays, **values)

    def _variables(self) -> list[Any]:
        is_models = self.optimizer is None or self.optimizer is getattr(self.model, "optimizer", None)
        return [*model_state(self.model), *([] if is_models else self.optimizer.variables)]

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _take(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


TensorFlowKerasState = KerasState
"""Horovod's other name for it."""


def run(function: Callable[..., Result], reset_limit: int = 3) -> Callable[..., Result]:
    """Decorates ``function(state, …)``: it begins with what was last committed, and anew if collectives fail.

    Wrong arguments are not tried again; other failures of collectives ``reset_limit`` times.
    """

    @wraps(function)
    def wrapper(state: KerasState, *args: Any, **kwargs: Any) -> Result:
        session.init()
        state.load()
        num_resets = 0
        while True:
            state.sync()
            try:
                return function(state, *args, **kwargs)
            except Exception as error:
                if failure(error) is None or num_resets == reset_limit:
                    raise
                num_resets += 1
                state.restore()
                state.on_reset()

    return wrapper

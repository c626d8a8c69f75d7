"""A state of training that survives failures: in memory while ranks live, on disk if they do not.

    import ringlet.keras as hvd

    state = hvd.elastic.KerasState(model, directory="progress", epoch=0)

    @hvd.elastic.run
    def train(state):
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 50)]
        state.model.fit(x, y, initial_epoch=state.epoch, epochs=20, callbacks=callbacks)

    train(state)

If a collective fails on all ranks, training resumes from the last commit. If a process dies, the job ends; started with
``ringlet run --restarts 3``, possibly with another number of ranks, it resumes from the last commit in ``directory``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import numpy as np

from ringlet.comm.contract import Array
from ringlet.elastic import State as Commits
from ringlet.elastic import loop
from ringlet.elastic.loop import RESET_LIMIT, ElasticState, digest
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


class KerasState(ElasticState):
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
        super().__init__()
        self.model = model
        self.optimizer = optimizer
        self._directory = directory
        self._saved: tuple[list[Array], dict[str, Any]] | None = None
        self._add_values(values)

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
        self._assign(values)

    def sync(self) -> None:
        """What rank 0 has, on all ranks, kept as a copy."""
        broadcast_variables(self._variables(), 0)
        self._assign(session.broadcast_object(self._values(), 0))
        self.save()

    def write(self) -> None:
        """To the directory, if there is one; when this returns it is there."""
        if self._directory is not None:
            self._commits(self._directory).commit()

    def progress(self) -> Any:
        """A digest of the copy in memory."""
        return None if self._saved is None else digest(self._saved[1], self._saved[0])

    def load(self) -> bool:
        """Take what was last committed to the directory; False, and nothing changes, if there is nothing."""
        if self._directory is None:
            return False
        commits = self._commits(self._directory)
        if not commits.restore():
            return False
        for index, variable in enumerate(self._variables()):
            variable.assign(getattr(commits, f"variable_{index}"))
        self._assign({name: getattr(commits, f"value_{name}") for name in self._names})
        return True

    def _commits(self, directory: str | os.PathLike[str]) -> Commits:
        arrays = {f"variable_{i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(self._variables())}
        values = {f"value_{name}": value for name, value in self._values().items()}
        return Commits(directory, **arrays, **values)

    def _variables(self) -> list[Any]:
        is_models = self.optimizer is None or self.optimizer is getattr(self.model, "optimizer", None)
        return [*model_state(self.model), *([] if is_models else self.optimizer.variables)]


TensorFlowKerasState = KerasState
"""Horovod's other name for it."""


def run(function: Callable[..., Result], reset_limit: int = RESET_LIMIT) -> Callable[..., Result]:
    """Decorates ``function(state, …)``: it begins with what was last committed, and again if collectives fail.

    Wrong arguments are not tried again; other failures of collectives ``reset_limit`` times in a row. A commit that has
    brought training forward begins the count again.
    """
    return loop.run(function, reset_limit, lambda error: failure(error) is not None)


# -- callbacks that keep a state up to date from within ``fit`` -------------------------------------------------------
class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state every ``batches_per_commit`` batches and after each epoch.

    Must come after the callbacks that update the state. Every rank must have it.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._num_left = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Begin to count."""
        self._num_left = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Commit if it is time."""
        self._num_left -= 1
        if self._num_left == 0:
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Commit."""
        self._commit()

    def _commit(self) -> None:
        self._num_left = self.batches_per_commit
        _ = self.model  # on JAX this puts into the model what the steps have computed
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps ``state.batch``: how many batches of the present epoch are done.

    After a restart ``fit`` begins the epoch again; give it the rest: ``steps_per_epoch = total - state.batch``. Batches
    are counted on from there.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._num_before = 0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """What was done before."""
        self._num_before = self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """One more."""
        self.state.batch = self._num_before + batch + 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """The next epoch begins with its first batch."""
        self._num_before = 0
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps ``state.epoch``: how many epochs are done, also before a restart."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """One more."""
        self.state.epoch += 1

"""A state of training that survives failures: in memory while ranks live, on disk if they do not.

    import ringlet.keras as hvd

    state = hvd.elastic.KerasState(model, epoch=0)

    @hvd.elastic.run
    def train(state):
        callbacks = [hvd.elastic.UpdateEpochStateCallback(state), hvd.elastic.CommitStateCallback(state, 50)]
        state.model.fit(x, y, initial_epoch=state.epoch, epochs=20, callbacks=callbacks)

    train(state)

If a collective fails on all ranks, training resumes from the last commit. If a process dies, all end; started with
``ringlet run --restarts 3`` they are started again, possibly fewer of them, and resume from the last commit. With a
``directory`` a job that is started later resumes from there too.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np

from ringlet.comm.contract import Array
from ringlet.elastic import loop
from ringlet.elastic.loop import RESET_LIMIT, ElasticState, digest
from ringlet.errors import CheckpointError
from ringlet.keras.exchange import ArgumentError
from ringlet.keras.variables import broadcast_variables, build, model_state
from ringlet.named import session
from ringlet.named.failures import failure

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

Result = TypeVar("Result")


class VariablesState(ElasticState, ABC):
    """Variables, and values by name: ``state.epoch += 1``. Every rank must make it and call its methods.

    Values are numbers, texts, arrays, and lists and dictionaries of them; those of rank 0 count.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, values: Mapping[str, Any]) -> None:
        super().__init__(directory)
        self._saved: tuple[list[Array], dict[str, Any]] | None = None
        self._add_values(values)

    @abstractmethod
    def _variables(self) -> list[Any]:
        """All of them, in the same order on every rank."""

    def save(self) -> None:
        """Keep a copy in memory."""
        arrays = [np.array(keras.ops.convert_to_numpy(variable)) for variable in self._variables()]
        self._saved = arrays, copy.deepcopy(self._values())

    def restore(self) -> None:
        """Go back to the last copy in memory; before the first nothing changes."""
        if self._saved is not None:
            arrays, values = self._saved
            self._become(arrays, copy.deepcopy(values))

    def sync(self) -> None:
        """What rank 0 has, on all ranks, kept as a copy."""
        broadcast_variables(self._variables(), 0)
        self._assign(session.broadcast_object(self._values(), 0))
        self.save()

    def progress(self) -> Any:
        """A digest of the copy in memory."""
        return None if self._saved is None else digest(self._saved[1], self._saved[0])

    def encoded(self) -> dict[str, Any]:
        """The copy, by name."""
        arrays, values = self._saved or ([], {})
        variables = {f"variable_{index}": array for index, array in enumerate(arrays)}
        return {**variables, **{f"value_{name}": value for name, value in values.items()}}

    def take(self, found: dict[str, Any]) -> None:
        """A commit of a state with other names or numbers of variables is refused."""
        arrays = [found[f"variable_{index}"] for index in range(len(self._variables())) if f"variable_{index}" in found]
        names = {name for name in found if not name.startswith("variable_")}
        own = {f"value_{name}" for name in self._names}
        if names != own or len(arrays) != len(self._variables()) or len(found) != len(arrays) + len(names):
            raise CheckpointError(
                f"the commit holds {len(found) - len(names)} variables and {_listed(names)}, this state has "
                f"{len(self._variables())} and {_listed(own)}: give the same names, or another directory"
            )
        self._become(arrays, {name: found[f"value_{name}"] for name in self._names})

    def _become(self, arrays: Sequence[Array], values: Mapping[str, Any]) -> None:
        for variable, array in zip(self._variables(), arrays, strict=True):
            variable.assign(array)
        self._assign(values)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.removeprefix("value_") for name in names)) or "no values"


class KerasState(VariablesState):
    """A model, its optimizer, and values by name: ``state.epoch += 1``. Every rank must make it and call its methods.

    With ``directory`` commits are also written there, by rank 0. ``optimizer`` is needed if it is not the model's own.
    ``backend`` is Horovod's, for sessions of TensorFlow 1.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        backend: Any = None,  # noqa: ARG002
        *,
        directory: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        if not model.built:
            raise ArgumentError("the model has no weights yet: call model.build(input_shape), or the model, before")
        self.model = model
        self.optimizer = optimizer
        super().__init__(directory, values)

    def _variables(self) -> list[Any]:
        if self.optimizer is None or self.optimizer is getattr(self.model, "optimizer", None):
            return model_state(self.model)
        build(self.optimizer, self.model.trainable_variables)
        return [*model_state(self.model), *self.optimizer.variables]


TensorFlowKerasState = KerasState
"""Horovod's other name for it."""


def run(func: Callable[..., Result], reset_limit: int = RESET_LIMIT) -> Callable[..., Result]:
    """Decorates ``func(state, …)``: it begins with what was last committed, and again if collectives fail.

    Wrong arguments are not tried again; other failures of collectives ``reset_limit`` times in a row. A commit that has
    brought training forward begins the count again.
    """
    return loop.run(func, reset_limit, failure)


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

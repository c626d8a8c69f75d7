"""Keeping an elastic state up to date from within ``fit``."""

from __future__ import annotations

from typing import Any

import keras


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

    After a restart ``fit`` begins the epoch anew; give it the rest: ``steps_per_epoch = total - state.batch``. Batches
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

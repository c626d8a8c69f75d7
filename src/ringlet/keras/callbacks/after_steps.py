"""The moment between the training steps of an epoch and its validation, for which Keras has no hook of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import keras


class AfterStepsCallback(keras.callbacks.Callback, ABC):
    """Calls :meth:`after_steps` once per epoch: before validation if there is one, else at the epoch's end."""

    def __init__(self) -> None:
        super().__init__()
        self._is_open = False

    @abstractmethod
    def after_steps(self) -> None:
        """All training steps of this epoch are done on this rank."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Steps begin."""
        self._is_open = True

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Validation begins."""
        self._close()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """There may have been no validation."""
        self._close()

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.after_steps()

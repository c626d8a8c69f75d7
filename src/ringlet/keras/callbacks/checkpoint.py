"""Checkpoints that one rank writes."""

from __future__ import annotations

from typing import Any

import keras

from ringlet.keras.optimizer import process_set_of
from ringlet.named import session


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Rank 0 saves the model whenever ``monitor`` is better than ever. Metrics must be averaged before.

    In a process set its first rank does.
    """

    def __init__(
        self,
        filepath: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_weights_only: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            **options,
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save, on rank 0."""
        if self._is_first():
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save, on rank 0."""
        if self._is_first():
            super().on_epoch_end(epoch, logs)

    def _is_first(self) -> bool:
        return session.engine(process_set_of(self.model)).rank == 0

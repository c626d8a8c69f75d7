"""The same values on all ranks: at the beginning, and of moving statistics after each epoch."""

from __future__ import annotations

from typing import Any

import keras

from ringlet.keras.callbacks.after_steps import AfterStepsCallback
from ringlet.keras.collectives import broadcast_object
from ringlet.keras.optimizer import claim, process_set_of
from ringlet.keras.variables import average_variables, broadcast_model


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the weights and optimizer state of ``root_rank`` when training begins.

    So it does not matter which rank loaded a checkpoint, nor how ranks drew their initial weights. A model that has no
    weights before its first step gets them after it.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:  # noqa: ARG002
        super().__init__()
        self.root_rank = root_rank
        self._is_due = False

    def set_model(self, model: Any) -> None:
        """Check the model before its training step is made."""
        super().set_model(model)
        claim(model)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Broadcast."""
        self._is_due = True
        self._broadcast()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Broadcast if there were no variables yet."""
        self._broadcast()

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Broadcast if there was only one step."""
        self._broadcast()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Broadcast if there was only one step."""
        self._broadcast()

    def _broadcast(self) -> None:
        if not self._is_due or not self.model.built:
            return
        self._is_due = False
        exchange = claim(self.model)
        process_set = None if exchange is None else exchange.process_set
        broadcast_model(self.model, self.root_rank, process_set)
        if exchange is not None:  # ranks may have made different numbers of optimizers
            exchange.name = broadcast_object(exchange.name, self.root_rank, process_set=process_set)


class AverageStatisticsCallback(AfterStepsCallback):
    """Averages what batches leave in a model beside its gradients (moving means and variances) after each epoch."""

    def after_steps(self) -> None:
        """Average floating weights that are not trained."""
        weights = self.model.non_trainable_weights
        floating = [weight for weight in weights if keras.backend.is_float_dtype(weight.dtype)]
        average_variables(floating, process_set_of(self.model))

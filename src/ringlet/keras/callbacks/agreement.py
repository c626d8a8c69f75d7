"""Ranks end their epochs, and their training, together."""

from __future__ import annotations

from typing import Any

import keras

from ringlet.keras import backends
from ringlet.keras.callbacks.after_steps import AfterStepsCallback
from ringlet.keras.collectives import allgather_object, join
from ringlet.keras.errors import ArgumentError
from ringlet.keras.optimizer import exchange_of, process_set_of
from ringlet.keras.variables import broadcast_model
from ringlet.named import session


class JoinCallback(AfterStepsCallback):
    """Lets ranks have different numbers of steps in an epoch, also if nobody knows how many.

    A rank that is done contributes nothing to the others' averages. When all are done, all get the weights and the
    optimizer state of the rank that took the last step.
    """

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """All ranks must want the same number of epochs."""
        epochs = allgather_object((self.params or {}).get("epochs"), process_set=process_set_of(self.model))
        if any(number != epochs[0] for number in epochs):
            raise ArgumentError(f"ranks want different numbers of epochs, {epochs}: expected the same on all")

    def after_steps(self) -> None:
        """Wait for the others, and catch up with them."""
        model = self.model
        exchange = exchange_of(model.optimizer)
        if exchange is None or session.engine(exchange.process_set).size == 1:
            return
        backends.current().settle([variable.value for variable in model.trainable_variables])
        last = join(exchange.process_set)
        states = allgather_object([exchange.num_exchanges, _num_steps(model)], process_set=exchange.process_set)
        if any(state != states[0] for state in states):
            broadcast_model(model, last, exchange.process_set)
            exchange.num_exchanges = max(num_exchanges for num_exchanges, _ in states)


class StopTogetherCallback(keras.callbacks.Callback):
    """If any rank wants to stop after an epoch, all do. Must be the last of all callbacks."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Ask all."""
        if any(allgather_object(bool(self.model.stop_training), process_set=process_set_of(self.model))):
            self.model.stop_training = True


def _num_steps(model: Any) -> int:
    """With gradient accumulation there may have been steps without an exchange."""
    return int(keras.ops.convert_to_numpy(model.optimizer._iterations))

"""Callbacks for ``fit``. Those that agree on metrics must come before those that use them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import keras

from ringlet.keras import backends
from ringlet.keras.collectives import allgather_object, broadcast_object, join
from ringlet.keras.elastic import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from ringlet.keras.exchange import ArgumentError
from ringlet.keras.optimizer import claim, exchange_of, process_set_of, takes_part
from ringlet.keras.rates import LearningRateScheduleCallback, LearningRateWarmupCallback
from ringlet.keras.variables import average_variables, broadcast_model
from ringlet.named import ProcessSet, session

__all__ = [
    "AverageStatisticsCallback",
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "JoinCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "StopTogetherCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]


class AfterStepsCallback(keras.callbacks.Callback, ABC):
    """Calls :meth:`after_steps` once per epoch: before validation if there is one, else at the epoch's end.

    Keras has no hook of its own between the training steps of an epoch and its validation.
    """

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


# -- the same values on all ranks -------------------------------------------------------------------------------------
class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the weights and optimizer state of ``root_rank`` when training begins.

    So it does not matter which rank loaded a checkpoint, nor how ranks drew their initial weights. A model that has no
    weights before its first step gets them after it. ``local_variables`` stay as each rank has them.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:  # noqa: ARG002
        super().__init__()
        self.root_rank = root_rank
        self._is_due = False
        self._local = list(local_variables or ())

    def register_local_var(self, var: Any) -> None:
        """This variable stays as each rank has it."""
        self._local.append(var)

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
        if not takes_part(self.model):
            return
        process_set = None if exchange is None else exchange.process_set
        broadcast_model(self.model, self.root_rank, process_set, local_variables=self._local)
        if exchange is not None:  # ranks may have made different numbers of optimizers
            exchange.name = broadcast_object(exchange.name, self.root_rank, process_set=process_set)


class AverageStatisticsCallback(AfterStepsCallback):
    """Averages what batches leave in a model beside its gradients (moving means and variances) after each epoch."""

    def after_steps(self) -> None:
        """Average floating weights that are not trained."""
        weights = self.model.non_trainable_weights
        floating = [weight for weight in weights if keras.backend.is_float_dtype(weight.dtype)]
        if takes_part(self.model):
            average_variables(floating, process_set_of(self.model))


# -- ranks end their epochs, and their training, together -------------------------------------------------------------
class JoinCallback(AfterStepsCallback):
    """Lets ranks have different numbers of steps in an epoch, also if no one knows how many.

    A rank that is done contributes nothing to the others' averages. When all are done, all get the weights and the
    optimizer state of the rank that took the last step.
    """

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """All ranks must want the same number of epochs."""
        if not takes_part(self.model):
            return
        epochs = allgather_object((self.params or {}).get("epochs"), process_set=process_set_of(self.model))
        if any(number != epochs[0] for number in epochs):
            raise ArgumentError(f"ranks want different numbers of epochs, {epochs}: expected the same on all")

    def after_steps(self) -> None:
        """Wait for the others, and catch up with them."""
        model = self.model
        exchange = exchange_of(model.optimizer)
        if exchange is None or exchange.size == 1:
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
        if takes_part(self.model) and any(
            allgather_object(bool(self.model.stop_training), process_set=process_set_of(self.model))
        ):
            self.model.stop_training = True


def _num_steps(model: Any) -> int:
    """With gradient accumulation there may have been steps without an exchange."""
    return int(keras.ops.convert_to_numpy(model.optimizer._iterations))


# -- metrics of all ranks together ------------------------------------------------------------------------------------
def average_metrics(
    metrics: Mapping[str, float],
    weights: float | Mapping[str, float] = 1.0,
    process_set: ProcessSet | None = None,
) -> dict[str, float]:
    """Metrics by name, averaged over the ranks that have them; for instance what ``evaluate(return_dict=True)`` gives.

    ``weights``: how much this rank counts, for all metrics or by name; best its number of samples. Every rank must
    call.
    """
    own = {name: float(value) for name, value in metrics.items()}
    counts = {name: float(weights if isinstance(weights, int | float) else weights.get(name, 1.0)) for name in own}
    pairs = {name: [value, counts[name]] for name, value in own.items()}
    of_ranks = allgather_object(pairs, process_set=process_set)
    return {name: _mean([ranks[name] for ranks in of_ranks if name in ranks]) for name in own}


def _mean(pairs: list[list[float]]) -> float:
    total = sum(weight for _, weight in pairs)
    if total == 0:
        return sum(value for value, _ in pairs) / len(pairs)
    return sum(value * weight for value, weight in pairs if weight) / total


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages the metrics of an epoch over ranks, so that all ranks see the same. Must precede those that use them.

    ``sample_weighted``: ranks count by the samples they have seen, so averages of samples (loss, accuracy) are those
    over all samples. Metrics that are no averages, such as AUC, are averaged over ranks all the same.
    """

    def __init__(self, device: str = "", *, sample_weighted: bool = False) -> None:  # noqa: ARG002
        super().__init__()
        self.sample_weighted = sample_weighted
        self._num_trained: float | None = None
        self._num_validated = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Nothing is counted yet."""
        self._num_trained = None
        self._num_validated = 0.0

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Validation forgets the counts of training."""
        self._num_trained = self._num_samples()

    def on_test_end(self, logs: Any = None) -> None:  # noqa: ARG002
        """Count the samples of the validation."""
        self._num_validated = self._num_samples()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Average, in place."""
        if logs is None or not takes_part(self.model):
            return
        num_trained = self._num_samples() if self._num_trained is None else self._num_trained
        numbers = {name: value for name, value in logs.items() if isinstance(value, int | float)}
        weights = {name: self._num_validated if name.startswith("val_") else num_trained for name in numbers}
        logs.update(average_metrics(numbers, weights if self.sample_weighted else 1.0, process_set_of(self.model)))

    def _num_samples(self) -> float:
        """Keras weighs the loss of a batch by its samples, and so counts them."""
        tracker = next((metric for metric in self.model.metrics if metric.name == "loss"), None)
        count = getattr(tracker, "count", None)
        return 0.0 if count is None else float(keras.ops.convert_to_numpy(count))


# -- checkpoints that one rank writes ---------------------------------------------------------------------------------
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
        return takes_part(self.model) and session.collectives(process_set_of(self.model)).rank == 0

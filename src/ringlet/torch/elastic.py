"""A state of training that survives failures: in memory while the ranks live, on disk if they do not.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)

    @hvd.elastic.run
    def train(state):
        while state.epoch < 20:
            train_one_epoch(state.model, state.optimizer)
            state.epoch += 1
            state.commit()

    train(state)

If a collective fails on all ranks, training resumes from the last commit. If a process dies, all end; started with
``ringlet run --restarts 3`` they are started again, possibly fewer of them, and resume from the last commit. With a
``directory`` a job that is started later resumes from there too.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ringlet.elastic.loop import ElasticState, digest, run
from ringlet.errors import CheckpointError, RingletError
from ringlet.named.horovod import HostsUpdatedInterrupt
from ringlet.torch.broadcasting import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from ringlet.torch.data import ElasticSampler
from ringlet.torch.objects import join, split
from ringlet.torch.tensors import from_array, to_array

__all__ = [
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "LRSchedulerStateHandler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]


class State(ElasticState):
    """What all states have. Subclasses say how to ``save``, ``restore`` and ``sync``; every rank must call these."""

    def __init__(self, *, directory: str | os.PathLike[str] | None = None) -> None:
        """With a ``directory`` commits are also written there, by rank 0."""
        super().__init__(directory)

    def encoded(self) -> dict[str, Any]:
        """What :meth:`saved` gives, as arrays and an outline."""
        outline, tensors = split(self.saved(), "the state")
        arrays = {f"tensor{place}": to_array(tensor) for place, tensor in enumerate(tensors)}
        return {"outline": json.dumps(outline), **arrays}

    def take(self, found: dict[str, Any]) -> None:
        """What :meth:`encoded` gave."""
        if not isinstance(found.get("outline"), str):
            raise CheckpointError("the commit is not one of ringlet.torch: give another directory")
        tensors = [from_array(found[f"tensor{place}"].copy()) for place in range(len(found) - 1)]
        self.resume(join(json.loads(found["outline"]), tensors))

    def saved(self) -> dict[str, Any]:
        """The copy in memory, for a commit on disk: what :meth:`ringlet.torch.objects.split` takes."""
        raise NotImplementedError

    def resume(self, saved: dict[str, Any]) -> None:
        """Become what :meth:`saved` gave, in this or an earlier process."""
        raise NotImplementedError


class ObjectState(State):
    """Values by name, as attributes: ``state.epoch += 1``. They are what ``broadcast_object`` takes."""

    def __init__(
        self,
        bcast_object: Callable[[Any], Any] | None = None,
        get_rank: Callable[[], int] | None = None,  # noqa: ARG002
        *,
        directory: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        """``bcast_object`` and ``get_rank`` are Horovod's; the first is used if given."""
        super().__init__(directory=directory)
        self._broadcast = bcast_object if bcast_object is not None else broadcast_object
        self._add_values(values)
        self._saved_values = copy.deepcopy(values)

    def save(self) -> None:
        """Copies of all values."""
        self._saved_values = copy.deepcopy(self._values())

    def restore(self) -> None:
        """The values that were saved last."""
        self._assign(copy.deepcopy(self._saved_values))

    def sync(self) -> None:
        """The values of rank 0."""
        if self._names:
            self._assign(self._broadcast(self._values()))
        self._saved_values = copy.deepcopy(self._values())

    def saved(self) -> dict[str, Any]:
        """The values alone."""
        return {"values": self._saved_values}

    def resume(self, saved: dict[str, Any]) -> None:
        """The values alone; a commit of a state with other names is refused."""
        values = saved["values"]
        if values.keys() != set(self._names):
            raise CheckpointError(
                f"the commit holds {', '.join(sorted(values))}, this state has {', '.join(sorted(self._names))}: give "
                "the same names, or another directory"
            )
        self._assign(values)
        self._saved_values = copy.deepcopy(values)

    def progress(self) -> Any:
        """A digest of the copy in memory; the number of commits if it holds what cannot be written."""
        try:
            outline, tensors = split(self.saved(), "the state")
        except RingletError:
            return super().progress()
        return digest(outline, [to_array(tensor) for tensor in tensors])


# -- what TorchState does about models, optimizers, … -----------------------------------------------------------------
class StateHandler:
    """How something with a ``state_dict`` is saved, restored and made equal on all ranks."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.saved_state: Any = copy.deepcopy(value.state_dict())

    def save(self) -> None:
        """Keep a copy."""
        self.saved_state = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Go back to the copy."""
        self.value.load_state_dict(copy.deepcopy(self.saved_state))

    def sync(self) -> None:
        """What rank 0 has."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Take care of something else from now on."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Parameters and buffers."""

    def sync(self) -> None:
        """In place."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    """State and options of optimizers."""

    def sync(self) -> None:
        """State and options of rank 0."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class LRSchedulerStateHandler(StateHandler):
    """Learning-rate schedules."""

    def sync(self) -> None:
        """The schedule of rank 0."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


class SamplerStateHandler(StateHandler):
    """Samplers: what *any* rank has read counts as read."""

    def save(self) -> None:
        """Every rank must call."""
        state = copy.deepcopy(self.value.state_dict())
        state["processed_indices"] = set().union(*allgather_object(self.value.processed_indices))
        self.saved_state = state

    def sync(self) -> None:
        """What all ranks together have read, in the epoch of rank 0."""
        self.save()
        self.saved_state = broadcast_object(self.saved_state)
        self.restore()

    def set_value(self, value: Any) -> None:
        """Take care of another sampler; nothing is gathered before the next commit."""
        self.value = value
        self.saved_state = copy.deepcopy(value.state_dict())


Registry = list[tuple[type[Any], type[StateHandler]]]
_registry: Registry = [
    (Module, ModelStateHandler),
    (Optimizer, OptimizerStateHandler),
    (LRScheduler, LRSchedulerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Types, and what takes care of their instances in a :class:`TorchState`; the first that fits is used."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replace :func:`get_handler_registry`'s."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """Models, optimizers, learning-rate schedules, samplers and plain values, by name.

    What has a handler (:func:`get_handler_registry`) is saved by its ``state_dict``; the rest are values.
    """

    _handlers: dict[str, StateHandler]

    def __init__(
        self,
        model: Module | None = None,
        optimizer: Optimizer | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        **values: Any,
    ) -> None:
        handlers: dict[str, StateHandler] = {}
        plain: dict[str, Any] = {}
        for name, value in {"model": model, "optimizer": optimizer, **values}.items():
            handler = _handler_for(value)
            if handler is not None:
                handlers[name] = handler
            elif value is not None or name in values:
                plain[name] = value
        self._handlers = {}
        super().__init__(directory=directory, **plain)
        self.model, self.optimizer = model, optimizer
        for name, handler in handlers.items():
            setattr(self, name, handler.value)
        self._handlers = handlers

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        """Copies of everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Everything as it was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """What rank 0 has."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Samplers share out what is left."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def saved(self) -> dict[str, Any]:
        """States by name, and the values."""
        return {**super().saved(), "states": {name: handler.saved_state for name, handler in self._handlers.items()}}

    def resume(self, saved: dict[str, Any]) -> None:
        """States by name, and the values."""
        states = saved.get("states", {})
        if states.keys() != self._handlers.keys():
            raise CheckpointError(
                f"the commit holds {', '.join(sorted(states))}, this state has {', '.join(sorted(self._handlers))}: "
                "give the same names, or another directory"
            )
        super().resume(saved)
        for name, state in states.items():
            self._handlers[name].saved_state = state
            self._handlers[name].restore()


def _handler_for(value: Any) -> StateHandler | None:
    return next((handler(value) for kind, handler in _registry if isinstance(value, kind)), None)

"""What the ranks of a training test do: train as they are told, give figures and digests of what came out."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from unittest.mock import patch

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.errors import DivergedError
from ringlet.strategies import copies
from ringlet.timeline import RecordedTimeline
from ringlet.training.trace import gather_timelines, phase_seconds, write_trace
from ringlet.training.trainer import Trainer


def run_all(comm: Communicator, jobs: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What each job, a function of this file and its arguments, gives: many in one start of ranks."""
    return {name: globals()[function](comm, **arguments) for name, (function, arguments) in jobs.items()}


def train(comm: Communicator, **options: Any) -> dict[str, Any]:
    """Train and describe the result; ``shared_copy`` lets the ranks of a machine share their parameters."""
    if options.pop("shared_copy", False):
        with patch.object(copies, "OWN_COPY_BYTES", 0):
            return train(comm, **options)
    trainer = Trainer(communicator=comm, **options)
    history = trainer.fit()
    return describe(trainer) | {"epochs": history.epochs, "stopped": history.stopped}


def describe(trainer: Trainer) -> dict[str, Any]:
    """Digests of everything that training changes, and figures over the test data."""
    _, state = trainer.strategy.save()
    weights = trainer.replica.parameters.flat
    return {
        "weights": _digest(weights),
        "statistics": _digest(trainer.replica.state.flat),
        "optimizer": {name: _digest(values) for name, values in sorted(state.items())},
        "values": [float(weights[0]), float(np.abs(weights.astype(np.float64)).sum())],
        "first_weights": weights[:200].tolist(),
        "test": trainer.evaluate(),
    }


def own_memory(comm: Communicator, **options: Any) -> dict[str, Any]:
    """Whether all ranks of a machine see one copy of the parameters, and how much of the optimizer's state each has."""
    with patch.object(copies, "OWN_COPY_BYTES", 0):
        trainer = Trainer(communicator=comm, **options)
    parameters = trainer.replica.parameters.flat
    comm.barrier()
    if comm.local_rank == 0:
        parameters[7] = 42.0
    comm.barrier()
    state = trainer.strategy._state
    return {
        "seen": float(parameters[7]),
        "num_parameters": parameters.size,
        "held": {name: values.size for name, values in state.items()},
    }


def diverge(comm: Communicator, bad_rank: int, **options: Any) -> dict[str, Any]:
    """One rank's loss becomes infinite in the third step: all must stop there, before the update."""
    trainer = Trainer(communicator=comm, **options)
    replica, before = trainer.replica, []

    def poisoned(*arguments: Any, **keywords: Any) -> Any:
        output = original(*arguments, **keywords)
        if keywords["step"] == 3:
            before.append(_digest(replica.parameters.flat))
            if comm.rank == bad_rank:
                replica.gradients.flat[5] = np.nan
        return output

    original = replica.loss_and_gradients
    replica.loss_and_gradients = poisoned  # type: ignore[method-assign]
    try:
        trainer.fit()
    except DivergedError as error:
        return {"message": str(error), "unchanged": _digest(replica.parameters.flat) == before[0]}
    return {"message": "", "unchanged": False}


def stop(comm: Communicator, how: str, **options: Any) -> dict[str, Any]:
    """The last rank wants to stop: by a callback after the first epoch, or by an interruption in its second step."""
    from ringlet.training.observers import Control

    control = Control()
    steps = []

    def callback(event: Any) -> str | None:
        name = type(event).__name__
        steps.append(name)
        last = comm.rank == comm.size - 1
        if how == "interrupt" and last and steps.count("StepFinished") == 2:
            control.interrupt("asked to stop")
        return "enough" if how == "callback" and last and name == "EpochFinished" else None

    trainer = Trainer(communicator=comm, callbacks=[callback], **options)
    history = trainer.fit(control=control)
    return {"stopped": history.stopped, "steps": steps.count("StepFinished"), "weights": describe(trainer)["weights"]}


def validate(comm: Communicator, num_samples: int, **options: Any) -> list[Any]:
    """Validate again and again; the last rank is interrupted right after each of its looks in turn. Totals or None."""
    from ringlet.training.loop import evaluate
    from ringlet.training.observers import Control, Wish

    class Flipping(Control):
        def __init__(self, after: int) -> None:
            super().__init__()
            self.left = after

        @property
        def wish(self) -> Wish:
            self.left -= 1
            return Wish("asked to stop", True) if self.left < 0 else Wish()

    trainer = Trainer(communicator=comm, num_samples=num_samples, **options)
    loader = trainer.session.loader(trainer.session.source("validation"))
    found = []
    for after in range(2 * loader.num_steps + 2):
        control = Flipping(after) if comm.rank == comm.size - 1 else Control()
        meter = evaluate(trainer.replica, loader, trainer.session.measures, comm, trainer.num_shards, control)
        found.append(None if meter is None else meter.totals)
    return found


def timelines(comm: Communicator, path: str, **options: Any) -> dict[str, Any]:
    """Train with a timeline; rank 0 writes the trace."""
    timeline = RecordedTimeline()
    trainer = Trainer(communicator=comm, timeline=timeline, **options)
    trainer.fit()
    gathered = gather_timelines(timeline, comm)
    if comm.rank == 0:
        from pathlib import Path

        write_trace(Path(path), gathered)
    return {"seconds": [phase_seconds(own) for own in gathered], "ranks": [own.rank for own in gathered]}


def _digest(values: Any) -> str:
    array = np.ascontiguousarray(values)
    return hashlib.sha256(json.dumps([str(array.dtype), array.shape]).encode() + array.tobytes()).hexdigest()

"""What the ranks of a test of strategies do: one start of ranks, many trainings."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from resume_checks import _copy_with_one_checkpoint
from training_checks import describe

from ringlet import RunConfig
from ringlet.comm.contract import Communicator
from ringlet.engines.contract import FlatTensors
from ringlet.errors import DivergedError, InterruptedRunError
from ringlet.guards import faults
from ringlet.kernels import load
from ringlet.optim import create
from ringlet.strategies.contract import STRATEGIES, Job, Layout
from ringlet.training.events import Event, StalenessMeasured
from ringlet.training.session import Session
from ringlet.training.trainer import Trainer


def run_all(comm: Communicator, jobs: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What each job, a function of this file and its arguments, gives: many in one start of ranks."""
    return {name: globals()[function](comm, **arguments) for name, (function, arguments) in jobs.items()}


def train_all(comm: Communicator, jobs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The result of each job, by its name: the parameters, figures and digests of this rank."""
    results = {}
    for name, options in jobs.items():
        ages: list[StalenessMeasured] = []
        trainer = Trainer(communicator=comm, callbacks=[partial(_note_age, ages)], **options)
        history = trainer.fit()
        results[name] = describe(trainer) | {
            # As numbers they would take longer to write than to train.
            "all_weights": trainer.replica.parameters.flat.tobytes().hex(),
            "epochs": history.epochs,
            "state": trainer.replica.state.flat.tolist(),
            "staleness": [[age.mean, age.max, age.histogram] for age in ages],
        }
    return results


def weights_of(result: dict[str, Any]) -> Any:
    """The parameters in a result of :func:`train_all`, which are of float64."""
    return np.frombuffer(bytes.fromhex(result["all_weights"]))


def _note_age(ages: list[StalenessMeasured], event: Event) -> None:
    if isinstance(event, StalenessMeasured):
        ages.append(event)


def apart(comm: Communicator, **options: Any) -> dict[str, Any]:
    """At which steps all ranks begin with the same parameters, and whether they end so."""
    trainer = Trainer(communicator=comm, **options)
    parameters, original = trainer.replica.parameters.flat, trainer.replica.loss_and_gradients
    equal = []

    def look(*arguments: Any, **keywords: Any) -> Any:
        rows = comm.allgather(parameters[None])
        if (rows == rows[0]).all():
            equal.append(keywords["step"])
        return original(*arguments, **keywords)

    trainer.replica.loss_and_gradients = look  # type: ignore[method-assign]
    trainer.fit()
    rows = comm.allgather(parameters[None])
    return {"equal": equal, "at_end": bool((rows == rows[0]).all())}


def bad_gradient(comm: Communicator, bad_rank: int, bad_step: int, **options: Any) -> dict[str, Any]:
    """One rank's gradient is not finite in one step: what all ranks raise, or how many steps they have skipped."""
    trainer = Trainer(communicator=comm, **options)
    if trainer.config.output.run_dir is not None:
        trainer.keep_checkpoints(Path(trainer.config.output.run_dir))
    text = f"nan@rank={bad_rank},step={bad_step},phase=backward"
    before, faults.reach = faults.reach, faults.armed(faults.parse(text))
    try:
        trainer.fit()
    except DivergedError as error:
        message = str(error)
    else:
        message = ""
    finally:
        faults.reach = before
    flat = trainer.replica.parameters.flat
    rows = comm.allgather(flat[None])
    return {
        "message": message,
        "skipped": trainer.progress.num_skipped,
        "steps": trainer.progress.num_steps,
        "finite": bool(np.isfinite(flat).all()),
        "equal": bool((rows == rows[0]).all()),
    }


def resume(comm: Communicator, folder: str, cut: int, **options: Any) -> dict[str, Any]:
    """A run, the same from one of its checkpoints on, and the digests that both end with."""
    digests = []
    whole, copy = Path(folder) / "whole", Path(folder) / "copy"
    for place, more in ((whole, {}), (copy, {"resume": str(cut)})):
        if more and comm.rank == 0:
            _copy_with_one_checkpoint(whole, copy, cut)
        comm.barrier()
        session = Session.open(RunConfig(**options, **more, run_dir=str(place), evaluate=False, keep=0), comm)
        result = session.run()
        digests.append(describe(session) | {"epochs": result.epochs})
    return {"whole": digests[0], "resumed": digests[1]}


def interrupted(comm: Communicator, folder: str, at_step: int, **options: Any) -> dict[str, Any]:
    """SIGTERM reaches one rank in one step; how far all came, and that the run can go on."""
    session = Session.open(RunConfig(**options, run_dir=folder, evaluate=False), comm)
    original = session.replica.loss_and_gradients

    def with_signal(*arguments: Any, **keywords: Any) -> Any:
        if keywords["step"] == at_step and comm.rank == comm.size - 1:
            signal.raise_signal(signal.SIGTERM)
        return original(*arguments, **keywords)

    session.replica.loss_and_gradients = with_signal  # type: ignore[method-assign]
    try:
        session.run()
    except InterruptedRunError as error:
        message = str(error)
    else:
        message = ""
    stopped = session.progress.num_steps
    again = Session.open(RunConfig(**options, run_dir=folder, resume="auto", evaluate=False), comm)
    again.run()
    return {"message": message, "stopped": stopped, "steps": again.progress.num_steps}


class Replica:
    """As much of a replica as a strategy needs: running statistics."""

    def __init__(self, num_state: int) -> None:
        self.state = FlatTensors(np.zeros(num_state), {})


def follow_formula(comm: Communicator, choice: str, momentum: float) -> dict[str, float]:
    """Five steps with gradients that anybody can compute: the largest differences from the formulas.

    Ranks have different numbers of samples, and the last has none in the second step.
    """
    num_parameters, num_state, every, rate = 10_000, 7, 2, 0.1
    layout = Layout((), num_parameters, num_state, np.float64)
    chosen = STRATEGIES.parse(choice)
    strategy = chosen.build(Job(comm, layout, create("sgd", momentum=momentum), load()))
    replica = Replica(num_state)
    strategy.parameters[:] = np.linspace(-1, 1, num_parameters) + comm.rank  # those of rank 0 count
    strategy.attach(replica)

    def gradient(rank: int, step: int) -> Any:
        return np.sin(np.arange(num_parameters) * (rank + 1) + step)

    def samples(rank: int, step: int) -> int:
        return 0 if step == 2 and rank == comm.size - 1 else 3 + 2 * rank

    ranks = range(comm.size)
    given, block_rate = getattr(chosen, "block_momentum", 0.0), getattr(chosen, "block_rate", 1.0)
    kept = 1 - 1 / comm.size if given is None else given
    nesterov = not getattr(chosen, "classical", False)
    start = np.linspace(-1, 1, num_parameters)
    expected = [start.copy() for _ in ranks]
    velocities, states = [np.zeros(num_parameters) for _ in ranks], [np.zeros(num_state) for _ in ranks]
    block, counts = np.zeros(num_parameters), np.zeros(comm.size)
    differences = {"parameters": 0.0, "state": 0.0, "velocity": 0.0}
    for step in range(1, 6):
        strategy.begin()
        number = samples(comm.rank, step)
        strategy.gradients[:] = gradient(comm.rank, step)
        np.add(replica.state.flat, number, out=replica.state.flat)
        strategy.add(comm.rank, number)
        strategy.update(step=step, learning_rate=rate, num_samples=sum(samples(rank, step) for rank in ranks))
        strategy.end_step(step, wants_to_stop=False)
        if step == 5:
            strategy.settle()
        for rank in ranks:
            number = samples(rank, step)
            if number:
                velocities[rank] = momentum * velocities[rank] + gradient(rank, step)
                expected[rank] = expected[rank] - rate * velocities[rank]
                states[rank] = states[rank] + number
            counts[rank] += number
        if step % every == 0 or step == 5:
            weights = counts / counts.sum()
            learned = sum(weight * values for weight, values in zip(weights, expected, strict=True)) - start
            new = kept * block + block_rate * learned
            start = start + new + (kept * (new - block) if nesterov else 0)
            block = new
            expected = [start.copy() for _ in ranks]
            velocities = [sum(weight * values for weight, values in zip(weights, velocities, strict=True))] * comm.size
            states = [sum(weight * values for weight, values in zip(weights, states, strict=True))] * comm.size
            counts[:] = 0
        pairs = {
            "parameters": (strategy.parameters, expected[comm.rank]),
            "state": (replica.state.flat, states[comm.rank]),
        }
        for name, (found, wanted) in pairs.items():
            differences[name] = max(differences[name], float(np.abs(found - wanted).max()))
    _, saved = strategy.save()
    if momentum:
        differences["velocity"] = float(np.abs(saved["velocity"] - velocities[0]).max())
    return differences | {"moved": float(np.abs(start - np.linspace(-1, 1, num_parameters)).max())}


def follow_formulas(comm: Communicator, jobs: list[tuple[str, float]]) -> list[dict[str, float]]:
    """All of them."""
    return [follow_formula(comm, choice, momentum) for choice, momentum in jobs]


def grow_stale(comm: Communicator, choice: str) -> dict[str, Any]:
    """Rank 0 makes three updates while rank 1 computes: parameters after each gradient, and the staleness of all."""
    layout = Layout((), 3, 1, np.float64)
    strategy = STRATEGIES.parse(choice).build(Job(comm, layout, create("sgd"), load()))
    replica = Replica(1)
    strategy.attach(replica)
    seen = []
    for turn, rank in enumerate((0, 0, 0, 1, 0)):
        if comm.rank == rank:
            strategy.begin()
            strategy.gradients[:] = 1.0
            replica.state.flat[:] = turn
            strategy.add(rank, 4)
            strategy.update(step=1, learning_rate=0.3, num_samples=8)
            strategy.end_step(1, wants_to_stop=False)
            seen.append([turn, *strategy.parameters.tolist()])
        comm.barrier()
    strategy.settle()
    age = strategy.staleness()
    assert age is not None
    end = [*strategy.parameters.tolist(), *replica.state.flat.tolist()]
    return {"seen": seen, "end": end, "staleness": [age.mean, age.max, list(age.histogram)]}

"""What the ranks of a test of numbers that are not finite do: train on data or with gradients that overflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from training_checks import _digest

from ringlet.checkpoint import CheckpointStore
from ringlet.comm.contract import Communicator
from ringlet.data import Dataset
from ringlet.data.source import ArraySource
from ringlet.errors import ConfigError, DivergedError
from ringlet.models import builder as b
from ringlet.training.trainer import Trainer

NUM_SAMPLES, BATCH, BAD_STEP = 72, 12, 3


def run_all(comm: Communicator, jobs: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What each job, a function of this file and its arguments, gives: many in one start of ranks."""
    return {name: globals()[function](comm, **arguments) for name, (function, arguments) in jobs.items()}


def network(norm: bool) -> Any:
    """A small classifier, with running statistics or without."""
    x = b.conv2d(b.image_input((1, 6, 6)), 4, kernel=3)
    x = b.relu(b.batch_norm(x) if norm else x)
    return b.build("small", b.softmax(b.dense(b.flatten(x), 3)))


def data() -> Dataset:
    """A few samples that can be learned."""
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, NUM_SAMPLES)
    images = rng.standard_normal((NUM_SAMPLES, 1, 6, 6)).astype(np.float32) + labels[:, None, None, None]
    return Dataset("made", ArraySource(images, labels.astype(np.int64), 3))


def train_on(comm: Communicator, sample: float, norm: bool, folder: str, **options: Any) -> dict[str, Any]:
    """The first sample of the third step is so many times as large."""

    def enlarge(inputs: Any) -> None:
        inputs[0] *= np.float32(sample)

    return _train(comm, network(norm), folder, options, enlarge=enlarge)


def poke(comm: Communicator, value: float, folder: str, **options: Any) -> dict[str, Any]:
    """Every rank's gradient has an element of this ``value`` in the third step."""

    def spoil(trainer: Trainer) -> None:
        trainer.replica.gradients.flat[5] = value

    return _train(comm, network(True), folder, options, spoil=spoil)


def _train(
    comm: Communicator,
    spec: Any,
    folder: str,
    options: dict[str, Any],
    *,
    enlarge: Callable[[Any], None] = lambda _: None,
    spoil: Callable[[Trainer], None] = lambda _: None,
) -> dict[str, Any]:
    """What all ranks raise, or how many steps they have skipped, and what they hold then."""
    common = {"global_batch_size": BATCH, "num_epochs": 1, "partition": "contiguous", "run_dir": folder}
    common |= {"checkpoint_every": "1 steps", "keep": 0, "threads": 1, "seed": 1}
    trainer = Trainer(spec, data(), communicator=comm, **common | options)
    trainer.keep_checkpoints(Path(folder))
    original, before, after = trainer.replica.loss_and_gradients, [], []

    def watched(inputs: Any, *arguments: Any, **keywords: Any) -> Any:
        step = keywords["step"]
        if step == BAD_STEP and not before:
            before.append(_held(trainer))
        if step == BAD_STEP + 1 and not after:
            after.append(_held(trainer))
        inputs = inputs.copy()
        if step == BAD_STEP and keywords["shard"] == 0:
            enlarge(inputs)
        output = original(inputs, *arguments, **keywords)
        if step == BAD_STEP:
            spoil(trainer)
        return output

    trainer.replica.loss_and_gradients = watched  # type: ignore[method-assign]
    message = ""
    try:
        trainer.fit()
    except DivergedError as error:
        message = str(error)
        after = after or [_held(trainer)]
    comm.barrier()
    values = np.concatenate([trainer.replica.parameters.flat, trainer.replica.state.flat])
    rows = comm.allgather(values[None])
    return {
        "message": message,
        "skipped": trainer.progress.num_skipped,
        "unchanged": before[0] == after[0],
        "finite": bool(np.isfinite(values).all()),
        "equal": bool((rows == rows[0]).all()),
        "saved": _saved(Path(folder)) if comm.rank == 0 else [],
    }


def _held(trainer: Trainer) -> list[str]:
    """Digests of all that a step in lockstep changes on this rank."""
    strategy: Any = trainer.strategy
    state = getattr(strategy, "_state", {})
    compression = getattr(getattr(strategy, "_options", None), "compression", None)
    kept = getattr(compression, "residuals", {})
    arrays = [trainer.replica.parameters.flat, trainer.replica.state.flat, *(state[name] for name in sorted(state))]
    arrays += [kept[key] for key in sorted(kept)]
    return [_digest(array) for array in arrays]


def _saved(folder: Path) -> list[list[Any]]:
    """Every checkpoint's step and whether all in it is finite."""
    store = CheckpointStore(folder)
    found = []
    for entry in store.entries():
        checkpoint = store.load(entry.step)
        arrays = (*checkpoint.tensors.values(), *checkpoint.optimizer.values())
        found.append([entry.step, all(bool(np.isfinite(array).all()) for array in arrays)])
    return sorted(found)


def too_little_memory(comm: Communicator) -> str:
    """One worker finds that nothing is left; what each of them raises."""
    from ringlet.training import memory

    original = memory.available_bytes
    memory.available_bytes = lambda: 1 << 10 if comm.rank == comm.size - 1 else 1 << 40
    try:
        Trainer(network(True), data(), communicator=comm, global_batch_size=BATCH, num_epochs=1)
    except ConfigError as error:
        return str(error)
    finally:
        memory.available_bytes = original
    return ""

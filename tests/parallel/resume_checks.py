"""What the ranks of a resume test do: begin a run, or go on with it from each of its steps."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from ringlet import RunConfig
from ringlet.comm.contract import Communicator
from ringlet.training.session import Session

OPTIONS: dict[str, Any] = {
    "model": "vgg1dobn",  # dropout and batch norm: random streams and running statistics count
    "dataset": "digits",
    "num_samples": 100,  # ten of them for validation
    "num_epochs": 8,
    "steps_per_epoch": 5,
    "global_batch_size": 8,
    "shards": 4,
    "optimizer": "adam",
    "seed": 5,
    "evaluate": False,
    "keep": 0,
}


def begin(comm: Communicator, folder: str, **options: Any) -> dict[str, str]:
    """A run with a checkpoint of every step."""
    session = Session.open(RunConfig(**OPTIONS | options, run_dir=folder, checkpoint_every="1 steps"), comm)
    session.run()
    return _digests(session)


def go_on(comm: Communicator, sources: dict[str, str], target: str, **options: Any) -> dict[str, Any]:
    """Go on in a copy of each source, a run's folder, from the step that is its key; that the next step is saved."""
    results = {}
    for step, source in sources.items():
        folder = Path(target) / step
        if comm.rank == 0:
            _copy_with_one_checkpoint(Path(source), folder, int(step))
        comm.barrier()
        cursor = {"run_dir": str(folder), "resume": step, "checkpoint_every": f"{int(step) + 1} steps"}
        session = Session.open(RunConfig(**OPTIONS | options | cursor), comm)
        session.run()
        results[step] = _digests(session)
    return results


def rates(comm: Communicator, folder: str, **options: Any) -> list[float]:
    """The learning rate of every step that a run has logged, after it was begun or resumed here."""
    options["lr_schedulers"] = tuple(options["lr_schedulers"])
    session = Session.open(
        RunConfig(**OPTIONS | {"shards": None, "run_dir": folder} | options), comm, say=lambda _: None
    )
    session.run()
    comm.barrier()
    lines = map(json.loads, (Path(folder) / "events.ndjson").read_text().splitlines())
    return [line["learning_rate"] for line in lines if line["event"] == "step_finished"]


def _copy_with_one_checkpoint(source: Path, folder: Path, step: int) -> None:
    name = f"step-{step:08d}"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("checkpoints"))
    shutil.copytree(source / "checkpoints" / name, folder / "checkpoints" / name)


def _digests(session: Session) -> dict[str, str]:
    values, optimizer = session.strategy.save()
    arrays = {"values": values, **optimizer}
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in sorted(arrays.items())}

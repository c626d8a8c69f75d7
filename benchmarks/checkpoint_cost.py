"""What checkpoints and shards cost: epochs with and without, taken in turn by the same workers.

    python -m benchmarks.checkpoint_cost [--workers 2] [--models simplecnn,vgg16_bn] [--rounds 7]

An epoch has so many steps as the table says. After half of them the state (model and Adam's moments) is copied and
written in the background to the current folder's disk; time counts from the first step's end to the last one's, so the
checkpoint at the end of training, for which all wait, is not in it. "shards" is the same epoch with
``--shards 8``, the same global batch in eight parts, against one part per worker.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns

CASES: dict[str, dict[str, Any]] = {
    "simplecnn": {"model": "simplecnn", "input_shape": (1, 28, 28), "steps_per_epoch": 1000, "global_batch_size": 128},
    "vgg16_bn": {"model": "vgg16_bn", "input_shape": (3, 32, 32), "steps_per_epoch": 20, "global_batch_size": 64},
}
NUM_SHARDS = 8


def measure(model: str, folder: str, num_rounds: int) -> list[dict[str, Any]]:
    """Seconds of every epoch by way; every worker must call."""
    from ringlet import Trainer
    from ringlet.comm import world

    case = {**CASES[model], "dataset": "synthetic", "num_classes": 10, "validation_split": 0.0, "threads": 1}
    case |= {"num_samples": case["steps_per_epoch"] * case["global_batch_size"], "num_epochs": 10**6, "metrics": ()}
    half = f"{case['steps_per_epoch'] // 2} steps"
    trainers = {
        "plain": Trainer(**case),
        "checkpoints": Trainer(**case, run_dir=folder, checkpoint_every=half, keep=1),
        "shards": Trainer(**case, shards=NUM_SHARDS),
    }
    trainers["checkpoints"].keep_checkpoints(Path(folder) / "checkpoints")
    ways = [Variant(way, partial(_epoch_seconds, trainer), measures_itself=True) for way, trainer in trainers.items()]
    for way in ways:
        way.call()
    take_turns(ways, num_rounds, comm=world.communicator())
    return [way.to_dict() for way in ways]


def _epoch_seconds(trainer: Any) -> float:
    """From the end of the first step to that of the last one."""
    moments: list[float] = []
    trainer.callbacks = (partial(_note_step, moments),)
    trainer.fit(1)
    return moments[-1] - moments[0]


def _note_step(moments: list[float], event: object) -> None:
    if type(event).__name__ == "StepFinished":
        moments.append(perf_counter())


def main() -> None:
    """Measure and print."""
    import ringlet

    options = parser(__doc__, num_rounds=7, num_threads=None)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--models", default=",".join(CASES))
    given = options.parse_args()
    print_machine(workers=given.workers)
    rows, results = [], {}
    for model in given.models.split(","):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            ways = results[model] = ringlet.run(measure, model, folder, given.rounds, num_workers=given.workers)[0]
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.safetensors"))
        times = {way["name"]: way["median"] for way in ways}
        cost = times["checkpoints"] - times["plain"]
        shares = f"{cost / times['plain']:.1%}", f"{times['shards'] / times['plain'] - 1:.1%}"
        row = model, CASES[model]["steps_per_epoch"], f"{times['plain']:.2f}", f"{size / 1e6:.1f}", f"{1e3 * cost:.0f}"
        rows.append((*row, *shares))
    columns = ("network", "steps", "seconds", "checkpoint MB", "cost ms", "cost", f"{NUM_SHARDS} shards")
    report(given, "checkpoint_cost", columns, rows, results=results)


if __name__ == "__main__":
    main()

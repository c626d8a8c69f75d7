"""Does a step of two workers take as long as ``ringlet plan`` says?

    python -m benchmarks.plan_accuracy [--models simplecnn,vgg16_bn,unet] [--rounds 3]

Every round plans (passes of workers that exchange nothing, exchanges of buffers of fixed sizes, put together by
the model), and trains for real with two workers on the same synthetic data and takes the samples per second of the
run's epochs. The times are medians over rounds, because a machine is not equally quiet at all times.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns

WORKERS = 2


@dataclass(frozen=True)
class Case:
    """A network with its local batch, and the samples of one epoch of the real run."""

    options: tuple[str, ...]
    local_batch_size: int
    num_samples: int


CASES = {
    "simplecnn": Case(("--model", "simplecnn", "--input-shape", "1,28,28", "--num-classes", "10"), 64, 64_000),
    "vgg16_bn": Case(("--model", "vgg16_bn", "--input-shape", "3,32,32", "--num-classes", "10"), 32, 640),
    "unet": Case(("--model", "unet", "--input-shape", "3,128,128", "--model-options", "width=8,levels=5"), 8, 960),
}


def _command(verb: str, case: Case, *more: str) -> list[str]:
    data = ("--dataset", "synthetic", "--num-samples", str(case.num_samples), "--validation-split", "0")
    batch = ("--local-batch-size", str(case.local_batch_size))
    return [sys.executable, "-m", "ringlet", verb, *case.options, *data, *batch, *more]


def predict(case: Case) -> float:
    """Seconds of a step of two workers, as planned."""
    command = _command("plan", case, "--workers", str(WORKERS), "--json")
    document = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return float(document["workers"][0]["step_seconds"])


def train(case: Case, num_epochs: int) -> float:
    """Seconds of a step of two workers that train: the median over epochs but the first."""
    with tempfile.TemporaryDirectory() as folder:
        run = ("--num-epochs", str(num_epochs), "--run-dir", f"{folder}/run", "--no-evaluate")
        command = _command("train", case, "-n", str(WORKERS), "--checkpoint-every", "never", *run)
        subprocess.run(command, check=True, capture_output=True)
        lines = (Path(folder) / "run" / "events.ndjson").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    rates = [event["samples_per_second"] for event in events if event["event"] == "epoch_finished"]
    return WORKERS * case.local_batch_size / median(rates[1:])


def main() -> None:
    """Predict, train, compare."""
    options = parser(__doc__, num_rounds=3, num_threads=None)
    options.add_argument("--models", default=",".join(CASES))
    options.add_argument("--epochs", type=int, default=3)
    given = options.parse_args()
    print_machine(workers=WORKERS)
    rows, results = [], {}
    for model in given.models.split(","):
        case = CASES[model]
        planned = Variant("planned", partial(predict, case), measures_itself=True)
        real = Variant("real", partial(train, case, given.epochs), measures_itself=True)
        take_turns([planned, real], given.rounds)
        results[model] = [planned.to_dict(), real.to_dict()]
        pairs = zip(planned.seconds, real.seconds, strict=True)
        spread = ", ".join(f"{first / second - 1:+.0%}" for first, second in pairs)
        times = f"{1e3 * planned.median:.2f}", f"{1e3 * real.median:.2f}"
        rows.append((model, case.local_batch_size, *times, f"{planned.median / real.median - 1:+.1%}", spread))
    columns = ("network", "local batch", "planned ms", "trained ms", "error", "each round")
    report(given, "plan_accuracy", columns, rows, results=results)


if __name__ == "__main__":
    main()

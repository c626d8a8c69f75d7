"""All benchmarks that feed the documentation, each with a limit of time: ``python -m benchmarks [PART …] [--list]``.

A part is one command with its options and its own result; ``python -m benchmarks exchange memory`` runs two of them
again. What is not done when its time is over is ended (training steps keep the cases that were finished), what cannot
run here is named, and the others go on. Afterwards ``make docs`` writes the tables of the documentation.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from time import perf_counter

from benchmarks.common import print_table


@dataclass(frozen=True)
class Part:
    """A command, and the minutes after which it is ended."""

    words: str
    minutes: float
    needs_mnist: bool = False


PARTS: dict[str, Part] = {
    "startup": Part("startup", 2),
    "training_speed": Part("training_speed --minutes 30", 45),
    "training_speed.published": Part(
        "training_speed --set published --layouts best --rounds 3 --minutes 110 --memory", 130
    ),
    "training_speed.2_threads": Part("training_speed --threads 2 --layouts best --rounds 3 --minutes 15", 25),
    "training_speed.published_2_threads": Part(
        "training_speed --set published --threads 2 --batches 4 --layouts best --rounds 3 --minutes 25", 40
    ),
    "thread_scaling": Part("thread_scaling", 3),
    "step_calls": Part("step_calls", 2),
    "memory": Part("memory", 10),
    "exchange": Part("exchange", 6),
    "worker_scaling": Part("worker_scaling", 6),
    "worker_scaling.strong": Part("worker_scaling --scaling strong --models unet --workers 1,2", 4),
    "checkpoint_cost": Part("checkpoint_cost", 6),
    "recovery": Part("recovery", 6),
    "named_latency": Part("named_latency", 2),
    "torch_training": Part("torch_training", 25),
    "engines": Part("engines", 8),
    "inference": Part("inference", 12),
    "database_scoring": Part("database_scoring", 8),
    "plan_accuracy": Part("plan_accuracy", 10),
    "picture_memory": Part("picture_memory", 4),
    "mnist_accuracy": Part("mnist_accuracy --workers 2", 4, needs_mnist=True),
    "strategies": Part("strategies", 10, needs_mnist=True),
}
"""In the order in which they are run. ``mask_quality`` takes pictures that are not passed on."""


def main() -> int:
    """Run what was asked for; 1 if anything failed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", metavar="PART", help="which ones (default: all)")
    options.add_argument("--list", action="store_true", help="show parts, commands and limits, and run nothing")
    options.add_argument("--mnist", metavar="FOLDER", help="idx files of MNIST (default: from the cache)")
    given = options.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        options.error(f"no part is called {', '.join(unknown)}: expected some of {', '.join(PARTS)}")
    chosen = {name: PARTS[name] for name in given.parts or PARTS}
    if given.list:
        rows = [(name, f"python -m benchmarks.{part.words}", f"{part.minutes:g}") for name, part in chosen.items()]
        print_table(("part", "command", "at most, minutes"), rows)
        return 0
    outcomes = {name: run(name, part, given.mnist) for name, part in chosen.items()}
    print()
    print_table(("part", "outcome"), list(outcomes.items()))
    return int(any(not outcome.startswith("done") for outcome in outcomes.values()))


def run(name: str, part: Part, mnist: str | None) -> str:
    """How a part ended."""
    benchmark, *arguments = part.words.split()
    arguments += [mnist] if part.needs_mnist and mnist else []
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", *arguments]
    print(f"\n== {name}: {' '.join(command[1:])} (at most {part.minutes:g} minutes)", flush=True)
    start = perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(60 * part.minutes)
    except subprocess.TimeoutExpired:
        return f"ended after {part.minutes:g} minutes"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    taken = f"{(perf_counter() - start) / 60:.1f} minutes"
    return f"done in {taken}" if code == 0 else f"exit code {code} after {taken}"


if __name__ == "__main__":
    sys.exit(main())

"""Does another worker pay off? Steps of one, two and more workers, taken in turn by the same processes.

    python -m benchmarks.worker_scaling [--workers 1,2,4] [--models simplecnn,vgg16_bn] [--rounds 7]

Every worker has the local batch of the table and one thread; the work of a step grows with the workers, so the ideal is
that samples per second grow as well. Workers that are not part of a measurement sleep.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common import print_table
from benchmarks.steps import CASES, ringlet_step

ROUND_SECONDS = 1.0


def measure(models: list[str], counts: list[int], num_rounds: int) -> dict[str, dict[str, list[float]]]:
    """Samples per second of every round, by model and number of workers; every worker must call."""
    from ringlet.comm import world

    comm = world.communicator()
    groups = {count: comm.group(range(count)) for count in counts}
    results: dict[str, dict[str, list[float]]] = {}
    for model in models:
        case = CASES[model]()
        steps = {
            count: None if group is None else ringlet_step(case, num_threads=1, comm=group)
            for count, group in groups.items()
        }
        figures: dict[str, list[float]] = {str(count): [] for count in counts}
        number = None
        for round_ in range(num_rounds + 1):
            for count in counts:
                step = steps[count]
                seconds = 0.0
                comm.barrier()
                if step is not None:
                    start = perf_counter()
                    for _ in range(number or 3):
                        step()
                    seconds = perf_counter() - start
                slowest = float(comm.allreduce(np.array([seconds]), _maximum())[0])
                if round_ > 0 and number is not None:
                    figures[str(count)].append(count * case.batch_size * number / slowest)
            if number is None:
                number = max(2, int(ROUND_SECONDS / (slowest / 3)))
        results[model] = figures
    return results


def _maximum() -> Any:
    from ringlet.comm.contract import Op

    return Op.MAX


def main() -> None:
    import ringlet

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--models", default="simplecnn,vgg16_bn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    models = options.models.split(",")
    results = ringlet.run(measure, models, counts, options.rounds, num_workers=max(counts))[0]
    rows = []
    for model, figures in results.items():
        rates = {count: median(figures[str(count)]) for count in counts}
        batch = CASES[model]().batch_size
        rows += [
            [model, batch, count, f"{rates[count]:,.0f}", f"{rates[count] / rates[counts[0]]:.2f}x"] for count in counts
        ]
    print_table(["network", "local batch", "workers", "samples/s (median)", "speed-up"], rows)


if __name__ == "__main__":
    main()

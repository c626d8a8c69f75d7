"""Does another worker pay off? Steps of one, two and more workers, taken in turn by the same processes.

    python -m benchmarks.worker_scaling [--workers 1,2,4] [--models simplecnn,vgg16_bn] [--rounds 7]

Every worker has the local batch of the table and one thread; the work of a step grows with the workers, so the ideal is
that samples per second grow as well. "apart" are as many workers that train each for itself, without any exchange: what
the machine gives at best (its cores share caches, memory and clock). Workers that are not part of a measurement sleep.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common import parser, print_machine, print_table, save
from benchmarks.steps import CASES, Case, ringlet_step

ROUND_SECONDS = 1.0
Step = Callable[[], float] | None


def measure(models: list[str], counts: list[int], num_rounds: int) -> dict[str, Any]:
    """Samples per second of every round by model, way and number of workers; every worker must call."""
    from ringlet.comm import world

    comm = world.communicator()
    groups = {count: comm.group(range(count)) for count in counts}
    return {model: _measure(CASES[model](), groups, comm, num_rounds) for model in models}


def _measure(case: Case, groups: dict[int, Any], comm: Any, num_rounds: int) -> dict[str, list[float]]:
    alone = ringlet_step(case, num_threads=1)
    ways: dict[str, tuple[int, Step]] = {}
    for count, group in groups.items():
        ways[f"{count} together"] = (count, None if group is None else ringlet_step(case, num_threads=1, comm=group))
        ways[f"{count} apart"] = (count, alone if comm.rank < count else None)
    number = max(2, int(ROUND_SECONDS / max(_round(comm, alone, 3), 1e-9) * 3))
    figures: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(num_rounds + 1):
        for way, (count, step) in ways.items():
            seconds = _round(comm, step, number if turn else 20)
            if turn:  # the first turn settles caches and the choice of overlap
                figures[way].append(count * case.batch_size * number / seconds)
    return figures


def _round(comm: Any, step: Step, number: int) -> float:
    """Seconds of the slowest worker for so many steps."""
    from ringlet.comm.contract import Op

    comm.barrier()
    start = perf_counter()
    for _ in range(number if step is not None else 0):
        step()
    return float(comm.allreduce(np.array([perf_counter() - start if step is not None else 0.0]), Op.MAX)[0])


def main() -> None:
    """Measure and print."""
    import ringlet

    options = parser(__doc__, num_rounds=7, num_threads=None)
    options.add_argument("--workers", default="1,2,4")
    options.add_argument("--models", default="simplecnn,vgg16_bn")
    given = options.parse_args()
    counts = [int(count) for count in given.workers.split(",")]
    print_machine(workers=given.workers)
    results = ringlet.run(measure, given.models.split(","), counts, given.rounds, num_workers=max(counts))[0]
    rows = []
    for model, figures in results.items():
        rates = {way: median(values) for way, values in figures.items()}
        first = rates[f"{counts[0]} together"]
        for count in counts:
            together, apart = rates[f"{count} together"], rates[f"{count} apart"]
            gains = f"{together / first:.2f} x", f"{apart / first:.2f} x", f"{together / apart:.0%}"
            rows.append((model, CASES[model]().batch_size, count, f"{together:,.0f}", *gains))
    print_table(("network", "local batch", "workers", "samples/s", "gain", "gain apart", "of apart"), rows)
    save(given.json, "worker_scaling", results=results)


if __name__ == "__main__":
    main()

"""Does another worker pay off? Steps of one, two and more workers, taken in turn by the same processes.

    python -m benchmarks.worker_scaling [--workers 1,2,4] [--models simplecnn,vgg16_bn] [--rounds 7]
    python -m benchmarks.worker_scaling --scaling strong --models unet --workers 1,2

Every worker has the local batch of the table and one thread; the work of a step grows with the workers, so the ideal is
that samples per second grow as well. With ``--scaling strong`` the workers share one batch. "apart" are as many workers
that train each for itself, without any exchange: what the machine gives at best (its cores share caches, memory and
clock). Workers that are not part of a measurement sleep.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.cases import CASES, Case
from benchmarks.common import parser, print_machine, report
from benchmarks.steps import ringlet_step
from ringlet.bench.timing import Variant, take_turns, time_calls

ROUND_SECONDS = 1.0
NUM_SETTLING = 20


def measure(models: list[str], counts: list[int], num_rounds: int, scaling: str = "weak") -> dict[str, Any]:
    """Samples per second of every round by model, way and number of workers; every worker must call."""
    from ringlet.comm import world

    comm = world.communicator()
    groups = {count: comm.group(range(count)) for count in counts}
    return {model: _measure(CASES[model](), groups, comm, num_rounds, scaling == "strong") for model in models}


def _measure(
    whole: Case, groups: dict[int, Any], comm: Any, num_rounds: int, is_shared: bool
) -> dict[str, list[float]]:
    variants, sizes = [], []
    for count, group in groups.items():
        case = replace(whole, batch_size=whole.batch_size // count) if is_shared else whole
        together = _rest if group is None else ringlet_step(case, num_threads=1, comm=group)
        apart = ringlet_step(case, num_threads=1) if comm.rank < count else _rest
        variants += [Variant(f"{count} together", together), Variant(f"{count} apart", apart)]
        sizes += 2 * [count * case.batch_size]
    for variant in variants:  # settles caches and the choice of overlap
        time_calls(variant.call, NUM_SETTLING, comm=comm)
    take_turns(variants, num_rounds, comm=comm, round_seconds=ROUND_SECONDS)
    return {
        variant.name: [size / seconds for seconds in variant.seconds]
        for variant, size in zip(variants, sizes, strict=True)
    }


def _rest() -> None:
    """What a worker does that is not part of a measurement."""


def main() -> None:
    """Measure and print."""
    import ringlet

    options = parser(__doc__, num_rounds=7, num_threads=None)
    options.add_argument("--workers", default="1,2,4")
    options.add_argument("--models", default="simplecnn,vgg16_bn")
    options.add_argument("--scaling", default="weak", choices=["weak", "strong"], help="default: %(default)s")
    given = options.parse_args()
    counts = [int(count) for count in given.workers.split(",")]
    print_machine(workers=given.workers)
    arguments = given.models.split(","), counts, given.rounds, given.scaling
    results = ringlet.run(measure, *arguments, num_workers=max(counts))[0]
    rows = []
    for model, rounds in results.items():
        rates = {way: median(values) for way, values in rounds.items()}
        first = rates[f"{counts[0]} together"]
        for count in counts:
            together, apart = rates[f"{count} together"], rates[f"{count} apart"]
            gains = f"{together / first:.2f} x", f"{apart / first:.2f} x", f"{together / apart:.0%}"
            rows.append((model, CASES[model]().batch_size, count, f"{together:,.0f}", *gains))
    strong = given.scaling == "strong"
    batch = "global batch" if strong else "local batch"
    columns = ("network", batch, "workers", "samples/s", "gain", "gain apart", "of apart")
    report(given, "worker_scaling", columns, rows, part="strong" if strong else "", num_keys=3, results=results)


if __name__ == "__main__":
    main()

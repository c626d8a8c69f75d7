"""How long a named allreduce takes between two workers of one machine, beside the plain one of the communicator.

    python -m benchmarks.named_latency [--workers 2] [--rounds 15]

"named" is a blocking call (``NamedCollectives.run``); "in background" is submitted, then waited for; "buffer" works in
place on shared memory (``allreduce_buffer``). "50 at once" are fifty of that size under way together, per operation.
All take turns on the same workers; times are medians over rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.common import parser, print_machine, print_table, save

SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
ROUND_BYTES = 1 << 26
"""A round moves about so many bytes, in at most :data:`MAX_REPEATS` operations."""
MAX_REPEATS = 500
CROWD = 50


def measure(num_rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per operation, by size and contender, on each worker."""
    from ringlet.comm import world
    from ringlet.named import session

    session.init()
    collectives, plain = session.collectives(), world.communicator()
    results = {}
    for size in SIZES:
        calls = _contenders(collectives, plain, size)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(num_rounds + 1):
            for name, (call, num_operations) in calls.items():
                repeats = max(3, min(MAX_REPEATS, ROUND_BYTES // size) // num_operations)
                plain.barrier()
                start = perf_counter()
                for _ in range(repeats):
                    call()
                times[name].append((perf_counter() - start) / repeats / num_operations)
        results[str(size)] = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    session.shutdown()
    return results


def _contenders(collectives: Any, plain: Any, size: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Calls, and how many operations each is."""
    from ringlet.named import Reduction, Submission

    values = np.zeros(max(size // 4, 1), np.float32)
    buffer = collectives.buffer(values.size, np.float32)
    submission = Submission("allreduce", "named", (values,), (values,), Reduction.SUM)

    def together() -> None:
        for handle in [collectives.submit(each, background=False) for each in crowd]:
            handle.wait()

    found: dict[str, tuple[Callable[[], object], int]] = {
        "named": (lambda: collectives.run(submission), 1),
        "in background": (lambda: collectives.submit(submission).wait(), 1),
        "buffer": (lambda: collectives.allreduce_buffer(buffer, "buffer", background=False).wait(), 1),
        "plain": (lambda: plain.allreduce(values, out=values), 1),
    }
    if size * CROWD <= ROUND_BYTES:
        arrays = [values.copy() for _ in range(CROWD)]
        crowd = [Submission("allreduce", f"crowd.{n}", (array,), (array,)) for n, array in enumerate(arrays)]
        found["50 at once"] = (together, CROWD)
    return found


def main() -> None:
    """Measure and print."""
    from ringlet.bench.report import size_text
    from ringlet.launch import run

    options = parser(__doc__, num_rounds=15, num_threads=None)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    print_machine(workers=given.workers)
    results = run(measure, given.rounds, num_workers=given.workers, launcher="local")[0]
    names = ("named", "in background", "buffer", "50 at once", "plain")
    rows = [
        [size_text(int(size)), *(f"{1e6 * times[name]:.1f}" if name in times else "-" for name in names)]
        for size, times in results.items()
    ]
    print_table(("size", *(f"{name} us" for name in names)), rows)
    save(given.json, "named_latency", seconds=results)


if __name__ == "__main__":
    main()

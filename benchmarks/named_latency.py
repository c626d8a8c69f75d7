"""How long a named allreduce takes between two workers of one machine, beside the plain one of the communicator.

    python -m benchmarks.named_latency [--workers 2] [--rounds 15]

"named" is a blocking call (``NamedCollectives.run``); "in background" is submitted, then waited for; "buffer" works in
place on shared memory (``allreduce_buffer``). "50 at once" are fifty of that size under way together, per operation.
All take turns on the same workers; times are medians over rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns

SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
ROUND_SECONDS, MAX_CALLS = 0.02, 500
CROWD, MAX_CROWD_BYTES = 50, 1 << 26
AT_ONCE = f"{CROWD} at once"


def measure(num_rounds: int) -> dict[str, dict[str, float]]:
    """Seconds per operation, by size and way, on the slowest worker."""
    from ringlet.comm import world
    from ringlet.named import session

    session.init()
    collectives, plain = session.collectives(), world.communicator()
    results = {}
    for size in SIZES:
        ways = _ways(collectives, plain, size)
        take_turns(ways, num_rounds, comm=plain, round_seconds=ROUND_SECONDS, max_calls=MAX_CALLS)
        results[str(size)] = {way.name: way.median / (CROWD if way.name == AT_ONCE else 1) for way in ways}
    session.shutdown()
    return results


def _ways(collectives: Any, plain: Any, size: int) -> list[Variant]:
    from ringlet.named import Reduction, Submission

    values = np.zeros(max(size // 4, 1), np.float32)
    buffer = collectives.buffer(values.size, np.float32)
    submission = Submission("allreduce", "named", (values,), (values,), Reduction.SUM)
    found = [
        Variant("named", lambda: collectives.run(submission)),
        Variant("in background", lambda: collectives.submit(submission).wait()),
        Variant("buffer", lambda: collectives.allreduce_buffer(buffer, "buffer", background=False).wait()),
        Variant("plain", lambda: plain.allreduce(values, out=values)),
    ]
    if size * CROWD <= MAX_CROWD_BYTES:
        arrays = [values.copy() for _ in range(CROWD)]
        crowd = [Submission("allreduce", f"crowd.{n}", (array,), (array,)) for n, array in enumerate(arrays)]

        def together() -> None:
            for handle in [collectives.submit(each, background=False) for each in crowd]:
                handle.wait()

        found.append(Variant(AT_ONCE, together))
    return found


def main() -> None:
    """Measure and print."""
    from ringlet.bench.quantities import exact_size_text
    from ringlet.launch import run

    options = parser(__doc__, num_rounds=15, num_threads=None)
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    print_machine(workers=given.workers)
    results = run(measure, given.rounds, num_workers=given.workers, launcher="local")[0]
    names = ("named", "in background", "buffer", AT_ONCE, "plain")
    rows = [
        [exact_size_text(int(size)), *(f"{1e6 * times[name]:.1f}" if name in times else "-" for name in names)]
        for size, times in results.items()
    ]
    report(given, "named_latency", ("size", *(f"{name} us" for name in names)), rows, seconds=results)


if __name__ == "__main__":
    main()

"""Whether processors keep the order of memory that the channel between workers needs, and what they do without it.

    python -m benchmarks.litmus [--rounds 5000000] [--seconds 5]

First the three shapes of ``native/channel.hpp``: two threads on two processors run the few accesses of a shape at the
same time, ``--rounds`` times. "as the channel" must show no violation, on any processor; the exit code is 1 if it does.
"relaxed" has no order at all: it shows what the processor would do to a channel that forgot it, and that this test can
fail. x86 keeps the order of messages and reuse by itself, so there only "sleep" shows violations, and messages that are
"streamed" past the caches.

Then whole channels, compiled and in NumPy: two workers add up arrays of many sizes for ``--seconds`` each, and compare
every element. Under an emulator the figures say nothing of the emulated processor.
"""

from __future__ import annotations

import os
import platform
import sys
import time

import numpy as np

from benchmarks.common import parser, print_machine, report
from ringlet import kernels
from ringlet.comm.world import connect
from ringlet.launch import run

SHAPES = ("message", "reuse", "sleep")
ORDERS = {"channel": "as the channel", "relaxed": "relaxed", "streamed": "streamed"}
LENGTHS = (1, 7, 1000, 4096, 5000, 70_000, 300_000)
"""Elements of an exchange: one round, and several with parts in flight."""


def main() -> None:
    """Count, print, and fail if the channel's order was broken."""
    options = parser(__doc__, num_rounds=5_000_000, num_threads=None)
    options.add_argument("--seconds", type=float, default=5.0, help="for each whole channel (default: %(default)s)")
    given = options.parse_args()
    print_machine(processor=platform.machine())
    if "compiled" not in kernels.available():
        raise SystemExit("the litmus test needs the compiled kernels: install Ringlet where a C++20 compiler is there")
    shapes = count_shapes(given.rounds)
    channels = {name: exchange(name, given.seconds) for name in kernels.available()}
    rows: list[tuple[object, ...]] = [
        (f"{shape}, {ORDERS[order]}", f"{given.rounds:,}", f"{violations:,}")
        for (shape, order), violations in shapes.items()
    ]
    rows += [(f"whole channel, {name}", f"{total:,}", f"{wrong:,}") for name, (total, wrong) in channels.items()]
    named = {f"{shape}, {order}": violations for (shape, order), violations in shapes.items()}
    report(given, "litmus", ("what", "rounds", "violations"), rows, shapes=named, channels=channels)
    broken = sum(shapes[shape, "channel"] for shape in SHAPES) + sum(wrong for _, wrong in channels.values())
    if broken:
        sys.exit(
            f"the channel's order of memory was broken {broken:,} times: workers on this machine compute wrong sums"
        )


def count_shapes(num_rounds: int) -> dict[tuple[str, str], int]:
    """The violations by shape and order."""
    from ringlet.kernels import _native

    found = {}
    for order in ORDERS:
        if order != "streamed" or platform.machine().lower() in ("x86_64", "amd64"):
            for shape in SHAPES if order != "streamed" else ("message",):
                found[shape, order] = int(_native.litmus(shape, order, num_rounds))
    return found


def exchange(name: str, seconds: float) -> tuple[int, int]:
    """Two workers add up arrays through a channel of these kernels; gives exchanges and how many were wrong."""
    before = os.environ.get("RINGLET_KERNELS")
    os.environ["RINGLET_KERNELS"] = name
    try:
        counts = run(add_up, seconds, num_workers=2, launcher="local")
    finally:
        del os.environ["RINGLET_KERNELS"]
        if before is not None:
            os.environ["RINGLET_KERNELS"] = before
    return counts[0][0], sum(wrong for _, wrong in counts)


def add_up(seconds: float) -> tuple[int, int]:
    """On each worker: the exchanges it made, and after how many an element was not the sum of both numbers."""
    comm = connect()
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[comm.rank % len(processors)]})
    values, total, wrong = np.empty(max(LENGTHS), np.float32), 0, 0
    end = time.monotonic() + seconds
    while comm.allreduce(np.array([time.monotonic() < end], np.int64))[0] == comm.size:
        for length in LENGTHS:
            value = float(total % 1000)
            values[:length] = value + comm.rank
            sums = comm.allreduce(values[:length])
            wrong += not bool((sums == 2 * value + 1).all())
            total += 1
    return total, wrong


if __name__ == "__main__":
    main()

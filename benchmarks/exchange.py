"""How long two workers of one machine take to add up their gradients, beside MPI's Allreduce and Gloo.

    python -m benchmarks.exchange [--workers 2] [--sizes 1k,256k,4M,64M] [--rounds 15]

It runs ``ringlet bench``: the contenders take turns on the same workers; the medians over rounds are compared. "shared
arrays" is what synchronous training does, "any array" a plain ``ringlet.allreduce``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.common import parser, print_machine, report

SIZES = "1k,4k,16k,64k,256k,1M,4M,16M,64M"


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=15, num_threads=None)
    options.add_argument("--workers", default="2")
    options.add_argument("--sizes", default=SIZES)
    given = options.parse_args()
    print_machine(workers=given.workers)
    command = [sys.executable, "-m", "ringlet", "bench", "-n", given.workers, "--json"]
    command += ["--sizes", given.sizes, "--rounds", str(given.rounds)]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    entries = document["measurements"]
    columns = ("size", "shared arrays us", "any array us", *_headings(entries))
    report(given, "exchange", columns, _rows(entries), **document)


def _others(entries: list[dict[str, Any]]) -> list[str]:
    return [name for name in dict.fromkeys(entry["contender"] for entry in entries) if "ringlet" not in name]


def _headings(entries: list[dict[str, Any]]) -> list[str]:
    return [text for name in _others(entries) for text in (f"{name} us", "times shared")]


def _rows(entries: list[dict[str, Any]]) -> list[list[str]]:
    from ringlet.bench.quantities import exact_size_text

    times = {(entry["contender"], entry["num_bytes"]): 1e6 * entry["seconds"] for entry in entries}
    rows = []
    for size in sorted({entry["num_bytes"] for entry in entries}):
        shared = times["ringlet, shared arrays", size]
        row = [exact_size_text(size), f"{shared:.1f}", f"{times['ringlet', size]:.1f}"]
        for name in _others(entries):
            row += [f"{times[name, size]:.1f}", f"{times[name, size] / shared:.1f} x"]
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()

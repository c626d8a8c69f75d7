"""How long one waits before anything happens: importing Ringlet, and its help text.

    python -m benchmarks.startup

Every run is a fresh process; files are in the page cache, compiled Python files are there. "import" is timed inside the
process, commands from the outside, interpreter included.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.common import parser, print_machine, print_table, save

TIMED_IMPORT = "import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"


def main() -> None:
    """Measure and print."""
    given = parser(__doc__, num_rounds=11, num_threads=None).parse_args()
    print_machine()
    script = Path(sys.executable).with_name("ringlet")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "ringlet"]
    figures = {
        "import ringlet": [_timed_import("ringlet") for _ in range(given.rounds + 1)],
        "import ringlet.training.trainer": [_timed_import("ringlet.training.trainer") for _ in range(given.rounds + 1)],
        "ringlet --help": [_timed_command([*command, "--help"]) for _ in range(given.rounds + 1)],
        "ringlet train --help": [_timed_command([*command, "train", "--help"]) for _ in range(given.rounds + 1)],
        "python -c pass": [_timed_command([sys.executable, "-c", "pass"]) for _ in range(given.rounds + 1)],
        "import torch": [_timed_import("torch") for _ in range(3)],
    }
    medians = {name: statistics.median(times[1:]) for name, times in figures.items()}  # the first run warms up
    print_table(("what", "median ms"), [(name, f"{1000 * value:.0f}") for name, value in medians.items()])
    save(given.json, "startup", seconds=medians, runs=figures)


def _timed_import(name: str) -> float:
    return float(_run([sys.executable, "-c", TIMED_IMPORT.format(name=name)]))


def _timed_command(command: list[str]) -> float:
    start = perf_counter()
    _run(command)
    return perf_counter() - start


def _run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()

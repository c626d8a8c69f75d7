"""How long one waits before anything happens: importing Ringlet, and its help text.

    python -m benchmarks.startup

Every run is a fresh process, and all take turns; files are in the page cache, compiled Python files are there. "import"
is timed inside the process, commands from the outside, interpreter included.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns

TIMED_IMPORT = "import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"
IMPORTS = ("ringlet", "ringlet.training.trainer", "torch")


def main() -> None:
    """Measure and print."""
    given = parser(__doc__, num_rounds=11, num_threads=None).parse_args()
    print_machine()
    script = Path(sys.executable).with_name("ringlet")
    ringlet = [str(script)] if script.exists() else [sys.executable, "-m", "ringlet"]
    commands = {
        "ringlet --help": [*ringlet, "--help"],
        "ringlet train --help": [*ringlet, "train", "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    variants = [Variant(f"import {name}", partial(_timed_import, name), measures_itself=True) for name in IMPORTS]
    variants += [Variant(name, partial(_run, command)) for name, command in commands.items()]
    for variant in variants:
        variant.call()  # fills the page cache and writes compiled files
    take_turns(variants, given.rounds, round_seconds=0)
    rows = [(variant.name, f"{1000 * variant.median:.0f}", f"{1000 * variant.best:.0f}") for variant in variants]
    report(given, "startup", ("what", "median ms", "best ms"), rows, variants=[entry.to_dict() for entry in variants])


def _timed_import(name: str) -> float:
    return float(_run([sys.executable, "-c", TIMED_IMPORT.format(name=name)]))


def _run(command: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()

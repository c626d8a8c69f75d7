"""Training passes (forward and backward) of one worker with one thread on every engine.

    python -m benchmarks.engines [--models simplecnn,vgg16_bn] [--rounds 5]

Engines take turns within one run, each in a process of its own that stays alive, so that noise of the machine meets all
of them. Keras is measured on every backend that is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.cases import CASES
from benchmarks.common import parser, print_machine, report
from ringlet.bench.timing import Variant, take_turns

ROUND_SECONDS = 1.0
"""A round has as many passes as fill about this long."""


def contenders() -> dict[str, dict[str, str]]:
    """Engines that can be measured here, with what their environment needs."""
    found: dict[str, dict[str, str]] = {"native": {}}
    if find_spec("torch"):
        found["torch"] = {}
    if find_spec("keras"):
        backends = [name for name in ("tensorflow", "torch", "jax") if find_spec(name)]
        found |= {f"keras, {name}": {"KERAS_BACKEND": name} for name in backends}
    return found


def serve(engine: str, model: str) -> None:
    """In a process of its own: for every number on stdin so many passes; prints the seconds of one."""
    from ringlet.engines.engine import create_replica

    case = CASES[model]()
    replica: Any = create_replica(engine, case.spec, local_batch_size=case.batch_size, threads=1)
    inputs, targets = case.batch()
    replica.prepare()
    replica.loss_and_gradients(inputs, targets)
    print("ready", flush=True)
    for line in sys.stdin:
        start = perf_counter()
        for step in range(int(line)):
            replica.loss_and_gradients(inputs, targets, step=step)
        print((perf_counter() - start) / int(line), flush=True)


def measure(model: str, num_rounds: int) -> list[Variant]:
    """Seconds of a pass in every round, the native engine first."""
    running = {name: _start(name, model, environment) for name, environment in contenders().items()}
    variants = []
    for name, process in running.items():
        num_passes = max(1, round(ROUND_SECONDS / _ask(process, 2)))
        variants.append(Variant(name, partial(_ask, process, num_passes), measures_itself=True))
    take_turns(variants, num_rounds)
    for process in running.values():
        process.communicate()
    return variants


def _start(name: str, model: str, environment: dict[str, str]) -> Any:
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    engine = name.partition(",")[0]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.engines", "--serve", engine, model]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=settings, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"the engine '{name}' did not start: try ringlet train --engine {engine}")
    return process


def _ask(process: Any, num_passes: int) -> float:
    process.stdin.write(f"{num_passes}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return
    options = parser(__doc__, num_rounds=5, num_threads=None)
    options.add_argument("--models", default="simplecnn,vgg16_bn", help="comma list (default: %(default)s)")
    given = options.parse_args()
    print_machine(threads=1)
    rows, results = [], {}
    for model in given.models.split(","):
        variants, batch_size = measure(model, given.rounds), CASES[model]().batch_size
        results[model] = [variant.to_dict() for variant in variants]
        for variant in variants:
            pairs = zip(variants[0].seconds, variant.seconds, strict=True)
            times = f"{median(native / own for native, own in pairs):.2f} x"
            rows.append((model, batch_size, variant.name, f"{batch_size / variant.median:,.0f}", times))
    columns = ("network", "batch", "engine", "samples/s", "times native")
    report(given, "engines", columns, rows, num_keys=3, results=results)


if __name__ == "__main__":
    main()

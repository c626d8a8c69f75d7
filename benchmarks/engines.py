"""Training passes (forward and backward) of one worker with one thread on every engine.

    python -m benchmarks.engines [--models simplecnn,vgg16_bn] [--rounds 5]

Engines take turns within one run, each in a process of its own that stays alive, so that noise of the machine meets all
of them. Keras is measured on every backend that is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.common import parser, print_machine, print_table, save
from benchmarks.steps import CASES

ROUND_SECONDS = 1.0
"""A round has as many passes as fill about this long."""
NATIVE = "native"


def contenders() -> dict[str, dict[str, str]]:
    """Engines that can be measured here, with what their environment needs."""
    found: dict[str, dict[str, str]] = {NATIVE: {}}
    if find_spec("torch"):
        found["torch"] = {}
    if find_spec("keras"):
        backends = [name for name in ("tensorflow", "torch", "jax") if find_spec(name)]
        found |= {f"keras, {name}": {"KERAS_BACKEND": name} for name in backends}
    return found


def serve(engine: str, model: str) -> None:
    """In a process of its own: for every number on stdin so many passes; prints samples per second."""
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
        print(case.batch_size * int(line) / (perf_counter() - start), flush=True)


def measure(model: str, num_rounds: int) -> dict[str, list[float]]:
    """Samples per second of every round, by contender."""
    running = {name: _start(name, model, environment) for name, environment in contenders().items()}
    num_passes = {
        name: max(1, round(ROUND_SECONDS * _ask(process, 2) / CASES[model]().batch_size))
        for name, process in running.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(num_rounds):
        for name in running if turn % 2 == 0 else reversed(running):
            rates[name].append(_ask(running[name], num_passes[name]))
    for process in running.values():
        process.communicate()
    return rates


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
        rates = results[model] = measure(model, given.rounds)
        for name, own in rates.items():
            ratio = median(rate / native for rate, native in zip(own, rates[NATIVE], strict=True))
            rows.append((model, CASES[model]().batch_size, name, f"{median(own):,.0f}", f"{ratio:.2f} x"))
    print_table(("network", "batch", "engine", "samples/s", "times native"), rows)
    save(given.json, "engines", results=results)


if __name__ == "__main__":
    main()

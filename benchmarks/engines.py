"""Training steps on every engine, one thread: ``python -m benchmarks.engines [--rounds 3]``.

Samples per second of the processor's time, which others on the machine disturb less than that of the clock. Engines
take turns within one run, each in its own process that stays alive. Keras is measured on every installed backend.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from statistics import median
from time import process_time
from typing import Any

CASES = (("simplecnn", 64, 40), ("vgg16_bn", 32, 2))
"""Network, batch and steps of a round."""
SHAPES = {"simplecnn": (1, 28, 28), "vgg16_bn": (3, 32, 32)}


def contenders() -> list[tuple[str, dict[str, str]]]:
    """Engines that can be measured here, with their environment."""
    found: list[tuple[str, dict[str, str]]] = [("native", {})]
    if find_spec("torch"):
        found.append(("torch", {}))
    if find_spec("keras"):
        found += [("keras", {"KERAS_BACKEND": name}) for name in ("tensorflow", "torch", "jax") if find_spec(name)]
    return found


def serve(engine: str, model: str, batch: int) -> None:
    """In a process of its own: for every number on stdin so many steps; prints samples per second of processor time."""
    import numpy as np

    from ringlet.engines.registry import create_replica
    from ringlet.models import zoo

    spec = zoo.create(model, input_shape=SHAPES[model], num_classes=10)
    replica = create_replica(engine, spec, local_batch_size=batch, threads=1)
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((batch, *spec.input_shape), dtype=np.float32)
    targets = rng.integers(0, spec.output_shape[0], batch)
    replica.prepare()
    replica.loss_and_gradients(inputs, targets)
    print("ready", flush=True)
    for line in sys.stdin:
        start = process_time()
        for step in range(int(line)):
            replica.loss_and_gradients(inputs, targets, step=step)
        print(batch * int(line) / (process_time() - start), flush=True)


def start(engine: str, environment: dict[str, str], model: str, batch: int) -> Any:
    ours = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.engines", "--serve", engine, model, str(batch)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=ours, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", f"{engine} did not start"
    return process


def ask(process: Any, steps: int) -> float:
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(model: str, batch: int, steps: int, rounds: int) -> dict[str, float]:
    """Median samples per second of every contender."""
    running = {
        " ".join((engine, *environment.values())): start(engine, environment, model, batch)
        for engine, environment in contenders()
    }
    rates: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(rounds):
        for name, process in running.items():
            rates[name].append(ask(process, steps))
    for process in running.values():
        process.communicate()
    return {name: median(own) for name, own in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        engine, model, batch = arguments.serve
        serve(engine, model, int(batch))
        return
    for model, batch, steps in CASES:
        rates = measure(model, batch, steps, arguments.rounds)
        for name, rate in rates.items():
            print(f"{model:10} {name:18} {rate:10,.1f} samples/s {rate / rates['native']:6.2f} of native", flush=True)


if __name__ == "__main__":
    main()

"""Peak memory of training steps of vgg16_bn (CIFAR, batch 32), Ringlet beside PyTorch.

    python -m benchmarks.memory [--model resnet18]

Every engine runs in a fresh process with one thread. After the imports and one tiny network, which load the libraries,
the resident memory is the baseline; the result is how far the peak over set-up and three steps rises above it. It holds
parameters, gradients, Adam's moments, activations and scratch memory. "Ringlet" is a usual run; "measuring algorithms"
starts without cached choices and times its convolution algorithms too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common import parser, print_machine, report
from benchmarks.steps import CASES, Case, ringlet_step, torch_step

WORKERS: dict[str, Callable[[Case], Callable[[], object]]] = {
    "Ringlet": ringlet_step,
    "PyTorch contiguous": lambda case: torch_step(case, channels_last=False),
    "PyTorch channels last": lambda case: torch_step(case, channels_last=True),
}
NUM_STEPS = 3


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=1, num_threads=None)
    options.add_argument("--model", default="vgg16_bn", choices=sorted(CASES))
    options.add_argument("--worker", choices=WORKERS, help="measure in this process and print bytes (used internally)")
    given = options.parse_args()
    if given.worker:
        print(peak_growth(WORKERS[given.worker], CASES[given.model]()))
        return
    print_machine(network=given.model)
    with tempfile.TemporaryDirectory() as cache:
        first = _run("Ringlet", given.model, cache)
        peaks = {name: _run(name, given.model, cache) for name in WORKERS}
    peaks["Ringlet, measuring algorithms"] = first
    rival = min(value for name, value in peaks.items() if name.startswith("PyTorch"))
    rows = [(name, f"{value / 2**20:.0f}", f"{value / rival:.2f} x") for name, value in peaks.items()]
    report(given, "memory", ("engine", "peak MiB", "of PyTorch's least"), rows, bytes=peaks)


def peak_growth(make: Callable[[Case], Callable[[], object]], case: Case) -> int:
    """Bytes by which the peak of resident memory rises above what is there after the libraries are loaded."""
    from ringlet.models import zoo

    tiny = Case("tiny", zoo.create("simplecnn", input_shape=(1, 8, 8), num_classes=10), 8)
    make(tiny)()
    baseline = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts again
    step = make(case)
    for _ in range(NUM_STEPS):
        step()
    return _status("VmHWM") - baseline


def _status(name: str) -> int:
    """A size of this process in bytes (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _run(worker: str, model: str, cache: str) -> int:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.memory", "--worker", worker, "--model", model]
    environment = os.environ | threads | {"RINGLET_CACHE": cache}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()

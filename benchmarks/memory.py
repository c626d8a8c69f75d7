"""Peak memory of training steps, Ringlet beside PyTorch.

    python -m benchmarks.memory [--models vgg16_bn,unet@512:1,unet@512:4]

Every engine runs in a fresh process with one thread. After the imports and one tiny network, which load the libraries,
the resident memory is the baseline; the result is how far the peak over set-up and three steps rises above it. It holds
parameters, gradients, Adam's moments, activations and scratch memory. PyTorch counts with the layout that needs less.
"first run" starts without cached choices and times its convolution algorithms too. ``NAME:BATCH`` is another batch than
the usual one.
"""

from __future__ import annotations

import json
import sys
import tempfile

from benchmarks import cases, contenders
from benchmarks.common import parser, print_machine, report
from benchmarks.contenders import EAGER, OURS, OURS_BF16, Contender
from benchmarks.served import FailedError, Served

COLUMNS = (
    "network",
    "batch",
    "Ringlet MiB",
    "Ringlet bf16 MiB",
    "PyTorch MiB",
    "times PyTorch",
    "first run MiB",
)
MODELS = "vgg16_bn,unet@512:1,unet@512:2,unet@512:4,unet@512:12,resnet50@224:4"
SECONDS = 900


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        contenders.run(json.loads(sys.argv[2]))
        return
    options = parser(__doc__, num_rounds=1, num_threads=None)
    options.add_argument("--models", default=MODELS, help="comma list (default: %(default)s)")
    given = options.parse_args()
    print_machine()
    kinds = (OURS, OURS_BF16, EAGER)
    chosen = [contender for contender in contenders.available().values() if contender.kind in kinds]
    rows, results = [], {}
    for word in given.models.split(","):
        name, _, batch = word.partition(":")
        batch_size = int(batch) if batch else cases.make(name).batch_size
        with tempfile.TemporaryDirectory() as cache:
            first = peak_bytes(chosen[0], name, batch_size, cache)
            peaks = {contender.name: peak_bytes(contender, name, batch_size, cache) for contender in chosen}
        rows.append(row(name, batch_size, peaks, first))
        results[f"{name} / {batch_size}"] = {**peaks, "first run": first}
        print(f"  {name}, batch {batch_size}: {rows[-1][5]} PyTorch's", flush=True)
    print()
    report(given, "memory", COLUMNS, rows, num_keys=2, results=results)


def peak_bytes(contender: Contender, model: str, batch_size: int, cache: str) -> int:
    """Measured in a process of its own."""
    request = {"contender": contender.name, "model": model, "batch": batch_size, "threads": 1, "memory": True}
    environment = {**contender.environment, "RINGLET_CACHE": cache}
    served = Served("benchmarks.memory", request, num_threads=1, environment=environment)
    try:
        return int(served.answer(SECONDS)["bytes"])
    except FailedError as error:
        raise SystemExit(f"{model}, batch {batch_size}: {contender.name} failed: {error}") from None
    finally:
        served.close()


def row(name: str, batch_size: int, peaks: dict[str, int], first: int) -> tuple[object, ...]:
    """The cells of one network."""
    theirs = min(value for contender, value in peaks.items() if contender.startswith(f"{EAGER}, "))
    bf16 = f"{peaks[OURS_BF16] / 2**20:.0f}" if OURS_BF16 in peaks else "-"
    mib = (f"{value / 2**20:.0f}" for value in (theirs, first))
    return name, batch_size, f"{peaks[OURS] / 2**20:.0f}", bf16, next(mib), f"{peaks[OURS] / theirs:.2f} x", next(mib)


if __name__ == "__main__":
    main()

"""Speed of whole training steps (forward, backward, Adam) beside PyTorch eager.

    python -m benchmarks.training_speed [--threads 2] [--models simplecnn,unet]

PyTorch counts with the better of its two memory layouts (contiguous, channels last) and fused Adam. "of peak" is the
share of the float32 matrix product measured in the same run; Winograd's algorithms may exceed what it suggests, since
arithmetic is counted as direct convolution. Before timing, both must compute the same loss.

PyDTNN takes part where its benchmark command is given: --pydtnn "COMMAND"; the command must train simplecnn with batch
64 and print "Throughput: N samples/s".
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess

from benchmarks.common import parser, print_machine, report, sgemm_gflops, use_threads
from benchmarks.steps import CASES, Case, ringlet_step, torch_step, unet
from ringlet.bench.timing import Variant, fastest, take_turns

ROW = "network, batch, Ringlet ms, PyTorch ms, layout, times PyTorch, samples/s, GFLOP/s, of peak"
COLUMNS = tuple(ROW.split(", "))


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--models", default=",".join(CASES), help="comma list (default: %(default)s)")
    options.add_argument("--unet-levels", type=int, default=5, help="times down and up (default: %(default)s)")
    options.add_argument("--pydtnn", metavar="COMMAND", help="a command that runs PyDTNN's benchmark of simplecnn")
    given = options.parse_args()
    use_threads(given.threads)
    peak = sgemm_gflops(given.threads)
    print_machine(threads=given.threads, sgemm=f"{peak:.0f} GFLOP/s")
    rows, results = [], []
    for name in given.models.split(","):
        case = unet(given.unet_levels) if name == "unet" else CASES[name]()
        ours, theirs = _measure(case, given.rounds, given.threads)
        peak = max(peak, sgemm_gflops(given.threads))
        rows.append(_row(case, ours, theirs, peak))
        results.append({"network": name, "variants": [entry.to_dict() for entry in (ours, *theirs)]})
        print(f"  {name}: {fastest(theirs).median / ours.median:.2f} x PyTorch", flush=True)
    _pydtnn(given.pydtnn, given.threads, results)
    print()
    report(given, "training_speed", COLUMNS, rows, sgemm_gflops=peak, results=results)


def _measure(case: Case, num_rounds: int, num_threads: int) -> tuple[Variant, list[Variant]]:
    ours = Variant("Ringlet", ringlet_step(case, num_threads))
    theirs = [
        Variant("contiguous", torch_step(case, channels_last=False)),
        Variant("channels last", torch_step(case, channels_last=True)),
    ]
    _require_equal_loss(case, float(ours.call()), float(theirs[0].call()))
    take_turns([ours, *theirs], num_rounds)
    return ours, theirs


def _require_equal_loss(case: Case, ours: float, theirs: float) -> None:
    if abs(ours - theirs) > 1e-3 * abs(theirs):
        raise SystemExit(f"{case.name}: first loss {ours:.6f}, PyTorch's {theirs:.6f}: not the same network")


def _row(case: Case, ours: Variant, theirs: list[Variant], peak: float) -> tuple[object, ...]:
    rival, speed = fastest(theirs), case.gflop / ours.median
    return (
        case.name,
        case.batch_size,
        f"{1000 * ours.median:.2f}",
        f"{1000 * rival.median:.2f}",
        rival.name,
        f"{rival.median / ours.median:.2f} x",
        f"{case.batch_size / ours.median:,.0f}",
        f"{speed:.0f}",
        f"{speed / peak:.0%}",
    )


def _pydtnn(command: str | None, num_threads: int, results: list[dict[str, object]]) -> None:
    """Run PyDTNN's own benchmark, if asked to, and compare its throughput."""
    if command is None:
        print("\nPyDTNN: left out (give its benchmark with --pydtnn)")
        return
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(num_threads))
    output = subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"Throughput: ([\d.,]+) samples/s", output)
    if not found:
        raise SystemExit(f"PyDTNN: no line 'Throughput: N samples/s' in the output of {command}")
    throughput = float(found[-1].replace(",", ""))
    print(f"\nPyDTNN simplecnn: {throughput:,.0f} samples/s (compare with simplecnn's column samples/s)")
    results.append({"network": "simplecnn", "pydtnn_samples_per_second": throughput})


if __name__ == "__main__":
    main()

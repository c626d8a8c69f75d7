"""Speed of whole training steps (forward, backward, Adam) beside PyTorch and JAX.

    python -m benchmarks.training_speed [--set small|published|all] [--threads 2] [--memory]
    python -m benchmarks.training_speed --models 'resnet*@224' --batches 1,4 --merge

PyTorch counts with the better of its two memory layouts (contiguous, channels last) and fused Adam: eager and
``torch.compile``, in float32 and under bf16 autocast. "times float32" compares the float32 of both: PyTorch's best of
eager and compiled. "times bf16" compares PyTorch's best under autocast with Ringlet's bfloat16, or with its float32
where it has none. "times JAX" compares float32 with a jitted step. "of peak" is the share of the float32 matrix product
measured in the same run; Winograd's algorithms may exceed what it suggests, since arithmetic is counted as direct
convolution. Before timing, all must compute the same loss.

Every contender runs in a process of its own, on as many cores as it has threads, and all take turns. Results are saved
after every case. ``--memory`` adds how far resident memory peaks above that of a tiny network: Ringlet and PyTorch
eager at its least. PyDTNN takes part where its benchmark command is given: --pydtnn "COMMAND"; the command must train
simplecnn with batch 64 and print "Throughput: N samples/s".
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from time import monotonic

from benchmarks import cases, contenders, documents
from benchmarks.cases import SETS
from benchmarks.common import parser, print_machine, report, sgemm_gflops
from benchmarks.contenders import COMPILED, COMPILED_BF16, EAGER, EAGER_BF16, JAX, OURS, OURS_BF16
from benchmarks.documents import Table
from benchmarks.race import Entry, Limits, Race
from benchmarks.served import ONE_THREAD

KEYS = ("network", "input", "batch")
COLUMNS = (
    *KEYS,
    "Ringlet ms",
    "eager ms",
    "compiled ms",
    "times float32",
    "Ringlet bf16 ms",
    "autocast ms",
    "times bf16",
    "JAX ms",
    "times JAX",
    "samples/s",
    "of peak",
    "Ringlet MiB",
    "PyTorch MiB",
)
NONE = "-"


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        contenders.run(json.loads(sys.argv[2]))
        return
    given = _options()
    available = contenders.available()
    kinds = list(dict.fromkeys(contender.kind for contender in available.values()))
    wanted = [OURS, *given.contenders.split(",")] if given.contenders else kinds
    if unknown := set(wanted) - set(kinds):
        raise SystemExit(f"no contender is called {', '.join(sorted(unknown))}: here are {', '.join(kinds)}")
    chosen = [contender for contender in available.values() if contender.kind in wanted]
    print_machine("jax", threads=given.threads, contenders=", ".join(wanted))
    limits = Limits(given.rounds, given.start_seconds, given.case_seconds)
    begin, rows, results = monotonic(), [], {}
    left_out: list[str] = []
    for name, batch_size in cases.chosen(given.set, given.models, given.batches):
        if given.minutes and monotonic() - begin > 60 * given.minutes:
            left_out.append(f"{name}, batch {batch_size}")
            continue
        case = cases.make(name, batch_size)
        print(f"  {name}, batch {batch_size}: {case.gflop:,.0f} GFLOP a step", flush=True)
        race = Race(case, chosen, limits, num_threads=given.threads, memory=given.memory)
        race.run(best_layout_only=given.layouts == "best")
        if race.entries[OURS].failed:
            raise SystemExit(f"{name}, batch {batch_size}: {race.entries[OURS].failed}")
        rows.append(row(race, sgemm_gflops(given.threads)))
        results[" / ".join(map(str, rows[-1][: len(KEYS)]))] = {
            entry.contender.name: entry.to_dict() for entry in race.entries.values()
        }
        documents.save(Table("training_speed", COLUMNS, rows, part(given), len(KEYS), {"results": results}), given)
    _pydtnn(given.pydtnn, given.threads, results)
    if left_out:
        print(f"left out, since {given.minutes} minutes were over: {'; '.join(left_out)}")
    print()
    report(given, "training_speed", COLUMNS, rows, part=part(given), num_keys=len(KEYS), results=results)


def _options() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--set", default="small", choices=SETS, help="which networks (default: %(default)s)")
    options.add_argument(
        "--models", default="", help="only these: comma list, patterns allowed (default: all of the set)"
    )
    options.add_argument("--batches", default="", help="comma list (default: those of the set)")
    options.add_argument("--contenders", default="", help="only these kinds beside Ringlet, as eager,compiled,JAX")
    options.add_argument(
        "--layouts",
        default="all",
        choices=["all", "best"],
        help="compile in both layouts, or in the one in which eager was faster (default: %(default)s)",
    )
    options.add_argument("--memory", action="store_true", help="also measure the memory of a step")
    options.add_argument(
        "--minutes", type=float, default=0, help="begin no further case after so long (default: no limit)"
    )
    options.add_argument(
        "--start-seconds", type=float, default=420, help="leave out what is not ready by then (default: %(default)s)"
    )
    options.add_argument(
        "--case-seconds", type=float, default=300, help="begin no further round after so long (default: %(default)s)"
    )
    options.add_argument("--pydtnn", metavar="COMMAND", help="a command that runs PyDTNN's benchmark of simplecnn")
    return options.parse_args()


def part(given: argparse.Namespace) -> str:
    """Under which name the results are kept: sets and numbers of threads have tables of their own."""
    names = [] if given.set == "small" else [given.set]
    return "_".join(names + ([] if given.threads == 1 else [f"{given.threads}_threads"]))


def row(race: Race, peak: float) -> tuple[object, ...]:
    """The cells of one case."""
    case, ours = race.case, race.entries[OURS]
    eager, compiled = _fastest(race, EAGER), _fastest(race, COMPILED)
    autocast, jax = _fastest(race, EAGER_BF16, COMPILED_BF16), _fastest(race, JAX)
    bf16, float32 = _fastest(race, OURS_BF16), _fastest(race, EAGER, COMPILED)
    speed = case.gflop / ours.median
    return (
        case.network,
        case.input,
        case.batch_size,
        _milliseconds(ours),
        _milliseconds(eager),
        _milliseconds(compiled),
        _times(float32),
        _milliseconds(bf16),
        _milliseconds(autocast),
        _times(autocast, bf16),
        _milliseconds(jax),
        _times(jax),
        f"{case.batch_size / ours.median:,.0f}"
        if ours.median < case.batch_size
        else f"{case.batch_size / ours.median:.2f}",
        f"{speed / peak:.0%}",
        *_memory(race),
    )


def _fastest(race: Race, *kinds: str) -> Entry | None:
    found = [entry for kind in kinds for entry in race.of_kind(kind)]
    return min(found, key=lambda entry: entry.times, default=None)


def _milliseconds(entry: Entry | None) -> str:
    return NONE if entry is None else f"{1000 * entry.median:,.2f}"


def _times(rival: Entry | None, ours: Entry | None = None) -> str:
    """How many times as long as ours the rival takes; both are compared by what Ringlet's float32 took beside them."""
    return NONE if rival is None else f"{rival.times / (1.0 if ours is None else ours.times):.2f} x"


def _memory(race: Race) -> Sequence[str]:
    ours = race.entries[OURS].num_bytes
    theirs = [entry.num_bytes for entry in race.of_kind(EAGER) if entry.num_bytes is not None]
    return (
        NONE if ours is None else f"{ours / 2**20:,.0f}",
        f"{min(theirs) / 2**20:,.0f}" if theirs else NONE,
    )


def _pydtnn(command: str | None, num_threads: int, results: dict[str, dict[str, object]]) -> None:
    """Run PyDTNN's own benchmark, if asked to, and compare its throughput."""
    if command is None:
        return
    environment = os.environ | dict.fromkeys(ONE_THREAD, str(num_threads))
    output = subprocess.run(shlex.split(command), env=environment, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"Throughput: ([\d.,]+) samples/s", output)
    if not found:
        raise SystemExit(f"PyDTNN: no line 'Throughput: N samples/s' in the output of {command}")
    throughput = float(found[-1].replace(",", ""))
    print(f"\nPyDTNN simplecnn: {throughput:,.0f} samples/s (compare with simplecnn's column samples/s)")
    results["PyDTNN simplecnn"] = {"samples_per_second": throughput}


if __name__ == "__main__":
    main()

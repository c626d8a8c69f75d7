"""How long two workers of one machine take to add up their gradients, beside MPI's Allreduce, Gloo and DeepSpeed.

    python -m benchmarks.exchange [--workers 2] [--sizes 1k,256k,4M,64M] [--rounds 15] [--open-mpi PREFIX]

It runs ``ringlet bench``: the contenders take turns on the same workers; the medians over rounds are compared. "shared
arrays" is what synchronous training does, "any array" a plain ``ringlet.allreduce``.

A process can have one MPI alone, so Open MPI has a job of its own, where it is installed (``mpirun`` in the PATH, or a
prefix) and mpi4py was built for both; its XHC component is used if it is there. "Gloo alone" is a plain program of
PyTorch, without Ringlet in its processes: it shows whether the benchmark treats Gloo fairly.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import parser, print_machine, report

SIZES = "1k,4k,16k,64k,256k,1M,4M,16M,64M"
SHARED, ANY = "ringlet, shared arrays", "ringlet"
NAMES = {"gloo": "Gloo", "deepspeed, shared memory": "DeepSpeed"}
XHC = {"OMPI_MCA_coll_xhc_priority": "90"}
Times = dict[tuple[str, int], float]


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_rounds=15, num_threads=None)
    options.add_argument("--workers", default="2")
    options.add_argument("--sizes", default=SIZES)
    options.add_argument("--open-mpi", type=Path, metavar="PREFIX", help="where Open MPI is (default: that of mpirun)")
    given = options.parse_args()
    print_machine("mpi4py", "deepspeed", workers=given.workers)
    times = _bench(given, {})
    shared = {name: {size: times[SHARED, size] for _, size in times} for name, _ in times}
    for name, environment in _more_jobs(given.open_mpi).items():
        print(f"  {name}: a job of its own", flush=True)
        found = _bench(given, environment)
        times |= {(who, size): seconds for (who, size), seconds in found.items() if who == name}
        shared[name] = {size: found[SHARED, size] for _, size in found}
    times |= {("Gloo alone", size): seconds for size, seconds in _gloo_alone(given, times).items()}
    columns, rows = table(times, shared)
    seconds = {who: {str(size): times[name, size] for name, size in times if name == who} for who, _ in times}
    report(given, "exchange", columns, rows, seconds=seconds)


def _bench(given: Any, environment: dict[str, str]) -> Times:
    command = [sys.executable, "-m", "ringlet", "bench", "-n", given.workers, "--json"]
    command += ["--sizes", given.sizes, "--rounds", str(given.rounds)]
    command += ["--launcher", "mpi"] if environment else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | environment)
    entries = json.loads(done.stdout)["measurements"]
    return {(entry["contender"], entry["num_bytes"]): entry["seconds"] for entry in entries}


def _more_jobs(prefix: Path | None) -> dict[str, dict[str, str]]:
    """Other MPIs than the one that mpi4py finds by itself, with what their environment needs."""
    program = open_mpi_program(prefix)
    if program is None:
        print("  Open MPI: left out, no mpirun of it was found (--open-mpi PREFIX says where it is)")
        return {}
    info = program.with_name("ompi_info")
    listed = subprocess.run([info], capture_output=True, text=True).stdout if info.exists() else ""
    environment = {"MPI4PY_MPIABI": "openmpi", "RINGLET_MPIEXEC": str(program)}
    if (libraries := program.parents[1] / "lib").joinpath("libmpi.so.40").exists():
        environment |= {"OPAL_PREFIX": str(program.parents[1]), "LD_LIBRARY_PATH": str(libraries)}
    return {"Open MPI": environment | (XHC if "coll: xhc" in listed else {})}


def open_mpi_program(prefix: Path | None) -> Path | None:
    """The mpirun of Open MPI: below ``prefix``, or the first in the PATH that says so."""
    names = [str(prefix / "bin" / "mpirun")] if prefix else ["mpirun.openmpi", "mpirun", "mpiexec"]
    for path in filter(None, map(shutil.which, names)):
        said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
        if "Open MPI" in said or "OpenRTE" in said:
            return Path(path)
    return None


def _gloo_alone(given: Any, times: Times) -> dict[int, float]:
    """Seconds by size, in a program that has nothing of Ringlet."""
    sizes = sorted({size for _, size in times})
    program = Path(__file__).with_name("gloo_alone.py")
    arguments = [str(given.rounds), *map(str, sizes)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command += ["--nproc-per-node", given.workers, str(program), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        print(f"  Gloo alone: left out, {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")
        return {}
    return {int(size): seconds for size, seconds in json.loads(done.stdout).items()}


def table(times: Times, shared: dict[str, dict[int, float]]) -> tuple[list[str], list[list[str]]]:
    """A size each: microseconds, and how many times as long as ``shared`` arrays in the same job the others took."""
    from ringlet.bench.quantities import exact_size_text

    others = list(dict.fromkeys(name for name, _ in times if name not in (ANY, SHARED)))
    columns = ["size", "shared arrays us", "any array us"]
    for name in others:
        columns += [f"{NAMES.get(name, name)} us", f"{NAMES.get(name, name)} / shared"]
    rows = []
    for size in sorted({size for _, size in times}):
        row = [exact_size_text(size), f"{1e6 * times[SHARED, size]:.1f}", f"{1e6 * times[ANY, size]:.1f}"]
        for name in others:
            taken, least = times.get((name, size)), shared.get(name, shared[SHARED])[size]
            row += ["-", "-"] if taken is None else [f"{1e6 * taken:.1f}", f"{taken / least:.1f} x"]
        rows.append(row)
    return columns, rows


if __name__ == "__main__":
    main()

"""What the benchmarks share: interleaved timing, the machine's peak, tables, options.

Ratios are only as good as the quiet of the machine. So competitors take turns within one process, in rounds whose order
alternates, the clock is the wall's, and the figure of a competitor is the median over its rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

ROUND_SECONDS = 0.25
"""A round repeats its step for about this long."""


@dataclass
class Competitor:
    """Something to time: ``step`` is called again and again, ``enter`` once before each round."""

    name: str
    step: Callable[[], object]
    enter: Callable[[], object] = lambda: None
    seconds: list[float] = field(default_factory=list)
    """Seconds per step, one entry per round."""

    @property
    def median(self) -> float:
        """The figure of this competitor."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The least disturbed round."""
        return min(self.seconds)

    def figures(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"name": self.name, "median": self.median, "best": self.best, "rounds": self.seconds}


def race(competitors: Sequence[Competitor], num_rounds: int) -> None:
    """Let all take turns; afterwards each has ``num_rounds`` timings."""
    repeats = [_calibrate(competitor) for competitor in competitors]
    entries = list(zip(competitors, repeats, strict=True))
    for number in range(num_rounds):
        for competitor, repeat in entries if number % 2 == 0 else reversed(entries):
            competitor.enter()
            if repeat > 1:
                competitor.step()  # brings its data back into the caches
            start = perf_counter()
            for _ in range(repeat):
                competitor.step()
            competitor.seconds.append((perf_counter() - start) / repeat)


def fastest(competitors: Sequence[Competitor]) -> Competitor:
    """The one with the least median."""
    return min(competitors, key=lambda competitor: competitor.median)


def sgemm_gflops(num_threads: int, size: int = 1024, num_runs: int = 10) -> float:
    """The machine's float32 matrix product, the best of NumPy's BLAS and PyTorch's: what any layer could reach."""
    import torch

    a, b = (np.random.default_rng(seed).random((size, size), np.float32) for seed in (0, 1))
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    products = [lambda: a @ b, lambda: x @ y]
    times = []
    with threadpool_limits(limits=num_threads, user_api="blas"):
        torch.set_num_threads(num_threads)
        for product in products:
            product()
            times += [_time(product) for _ in range(num_runs)]
    return 2 * size**3 / min(times) / 1e9


def use_threads(num_threads: int) -> None:
    """The number of threads of Ringlet's kernels, NumPy's BLAS and PyTorch, from now on."""
    import torch

    from ringlet.kernels import load

    torch.set_num_threads(num_threads)
    threadpool_limits(limits=num_threads, user_api="blas")
    set_num_threads = getattr(load(), "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(num_threads)


def parser(description: str | None, *, num_rounds: int = 5, num_threads: int | None = 1) -> argparse.ArgumentParser:
    """Options that every benchmark has; ``num_threads`` None leaves ``--threads`` out."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--rounds", type=int, default=num_rounds, help="rounds of measurement (default: %(default)s)")
    found.add_argument("--json", type=Path, metavar="FILE", help="also save all figures to this file")
    if num_threads is not None:
        found.add_argument("--threads", type=int, default=num_threads, help="threads (default: %(default)s)")
    return found


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table that also reads well on a terminal; texts left, figures right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in (columns, rule, *cells):
        print("| " + " | ".join(_aligned(row, widths)) + " |", flush=True)


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    libraries = ("ringlet", "numpy", "torch")
    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version for name in libraries if (version := _version(name))},
    }
    try:
        from ringlet.kernels import load

        kernels: Any = load()
        found["kernels"] = kernels.name
        found["instruction_set"] = getattr(kernels, "instruction_set", lambda: "")()
    except ImportError:
        pass
    return found


def print_machine(**more: object) -> None:
    """One line above a table."""
    about = machine()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    kernels = " ".join(filter(None, (about.get("kernels"), about.get("instruction_set"))))
    extra = "".join(f"; {name.replace('_', ' ')} {value}" for name, value in more.items())
    print(f"{about['processor']}, {about['cores']} cores; {versions}; kernels {kernels}{extra}\n")


def save(path: Path | None, name: str, **results: Any) -> None:
    """Write the figures as JSON if a file was asked for."""
    if path is not None:
        document: Mapping[str, Any] = {"benchmark": name, "machine": machine(), **results}
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _calibrate(competitor: Competitor) -> int:
    """Warm up; how many steps make a round."""
    competitor.enter()
    competitor.step()
    seconds = min(_time(competitor.step) for _ in range(2))
    return max(1, round(ROUND_SECONDS / seconds))


def _time(function: Callable[[], object]) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return [cells[0].ljust(widths[0]), *rest]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

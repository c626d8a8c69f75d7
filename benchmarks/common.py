"""What the benchmarks share: options, threads, the machine's peak, and tables.

Times come from ``ringlet.bench.timing``. Ratios are only as good as the quiet of the machine, so variants take turns
within one run. Every result is kept as ``benchmarks/results/NAME-DATE.json`` with the machine it was measured on
(``benchmarks.documents``); ``scripts/update_docs.py`` writes tables of the documentation from the newest of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import documents
from benchmarks.documents import Table
from ringlet.machine import describe_machine, versions


class Parser(argparse.ArgumentParser):
    """Remembers the defaults, so that a result can say how to repeat it."""

    def parse_args(self, *arguments: Any, **more: Any) -> Any:  # type: ignore[override]
        given = super().parse_args(*arguments, **more)
        given.defaults = {name: self.get_default(name) for name in vars(given)}
        return given


def parser(description: str | None, *, num_rounds: int = 5, num_threads: int | None = 1) -> Parser:
    """Options that every benchmark has; ``num_threads`` None leaves ``--threads`` out."""
    found = Parser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--rounds", type=int, default=num_rounds, help="rounds of measurement (default: %(default)s)")
    default = "benchmarks/results/NAME-DATE.json"
    found.add_argument("--output", type=Path, metavar="FILE", help=f"where all results are saved (default: {default})")
    found.add_argument(
        "--merge", action="store_true", help="keep those rows of the newest result that are not measured now"
    )
    if num_threads is not None:
        found.add_argument("--threads", type=int, default=num_threads, help="threads (default: %(default)s)")
    return found


def print_machine(*libraries: str, **more: object) -> None:
    """One line above a table: the machine, versions of further libraries, and what else matters."""
    extra = {**versions(*libraries), **more}
    words = "".join(f"; {name.replace('_', ' ')} {value}" for name, value in extra.items())
    print(f"{describe_machine().summary()}{words}\n")


def report(
    given: argparse.Namespace,
    name: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    part: str = "",
    num_keys: int = 1,
    **results: Any,
) -> None:
    """Print the table of the benchmark ``name``, and save it with all results, its options and the machine.

    The first ``num_keys`` cells of a row say what was measured.
    """
    print_table(columns, rows)
    path = documents.save(Table(name, columns, rows, part, num_keys, results), given)
    print(f"\nsaved: {path}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A Markdown table that also reads well on a terminal; texts left, numbers right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in (columns, rule, *cells):
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("| " + " | ".join([row[0].ljust(widths[0]), *rest]) + " |", flush=True)


def use_threads(num_threads: int) -> None:
    """The number of threads of Ringlet's kernels, NumPy's BLAS and PyTorch, from now on."""
    import torch

    from ringlet.kernels import load

    torch.set_num_threads(num_threads)
    threadpool_limits(limits=num_threads, user_api="blas")
    set_num_threads = getattr(load(), "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(num_threads)


def sgemm_gflops(num_threads: int, size: int = 1024, num_runs: int = 10) -> float:
    """The machine's float32 matrix product, the best of NumPy's BLAS and PyTorch's: what any layer could reach."""
    import torch

    a, b = (np.random.default_rng(seed).random((size, size), np.float32) for seed in (0, 1))
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    products: list[Callable[[], object]] = [lambda: a @ b, lambda: x @ y]
    times = []
    with threadpool_limits(limits=num_threads, user_api="blas"):
        torch.set_num_threads(num_threads)
        for product in products:
            product()
            times += [seconds(product) for _ in range(num_runs)]
    return 2 * size**3 / min(times) / 1e9


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def fit(trainer: Any) -> tuple[Any, dict[str, float]]:
    """Train to the end; gives the history, and ``seconds`` and ``rate`` (samples per second)."""
    start = perf_counter()
    history = trainer.fit()
    taken = perf_counter() - start
    return history, {"seconds": taken, "rate": len(history.epochs) * len(trainer.dataset.train) / taken}

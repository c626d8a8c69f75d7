"""The kernels in readable NumPy: the specification of what the compiled ones compute, and what runs without them.

One module per family; each function's formula and rules stand in :class:`ringlet.kernels.contract.Kernels`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ringlet.kernels.contract import KERNELS, PreparedCall
from ringlet.kernels.reference import elements, losses, updates, windows

name = "reference"

for _module in (elements, losses, updates, windows):
    globals().update({kernel: getattr(_module, kernel) for kernel in KERNELS if hasattr(_module, kernel)})


def prepare(kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
    """See the contract."""
    return partial(globals()[kernel], *arrays, **options)


def in_turn(calls: Sequence[PreparedCall]) -> PreparedCall:
    """See the contract."""

    def run() -> None:
        for call in calls:
            call()

    return run

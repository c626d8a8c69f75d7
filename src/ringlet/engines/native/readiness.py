"""When each gradient is final: an exchange may begin with those elements while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ringlet.engines.contract import Floats
from ringlet.engines.native.buffers import Call

Range = tuple[int, int]
"""First element and the one behind the last."""


class BackwardPart(NamedTuple):
    """Calls that run one after the other, and what is final after the last of them."""

    calls: slice
    ranges: tuple[Range, ...]


def final_ranges(calls: Sequence[Call], gradients: Floats) -> dict[int, tuple[Range, ...]]:
    """Ranges of the flat ``gradients`` by the last call that touches them, merged where they meet.

    Elements that no call touches are under -1. Every element is in exactly one range.
    """
    touched = [(index, part) for index, call in enumerate(calls) for part in _touched(call, gradients)]
    cuts = np.unique([0, gradients.size, *(cut for _, part in touched for cut in part)])
    last = np.full(cuts.size - 1, -1)
    for index, part in touched:  # in the order of the calls: later ones overwrite
        first_cell, behind_cell = np.searchsorted(cuts, part)
        last[first_cell:behind_cell] = index
    edges = [0, *(np.flatnonzero(np.diff(last)) + 1).tolist(), last.size] if last.size else [0]
    ranges: dict[int, tuple[Range, ...]] = {}
    for first_cell, behind_cell in pairwise(edges):
        index = int(last[first_cell])
        ranges[index] = (*ranges.get(index, ()), (int(cuts[first_cell]), int(cuts[behind_cell])))
    return ranges


def backward_parts(ranges: dict[int, tuple[Range, ...]], num_forward: int, num_calls: int) -> list[BackwardPart]:
    """Cut the calls of a training step behind the first ``num_forward`` wherever gradients become final."""
    parts = [BackwardPart(slice(num_forward, num_forward), ranges[-1])] if -1 in ranges else []
    begin = num_forward
    for index in sorted(index for index in ranges if index >= 0):
        parts.append(BackwardPart(slice(begin, index + 1), ranges[index]))
        begin = index + 1
    if begin < num_calls:
        parts.append(BackwardPart(slice(begin, num_calls), ()))
    return parts


def _touched(call: Call, gradients: Floats) -> list[Range]:
    """The elements of ``gradients`` among the arrays of a call, which are contiguous."""
    base = gradients.ctypes.data
    ranges = []
    for argument in call.arguments:
        if isinstance(argument, np.ndarray) and argument.size:
            start, rest = divmod(argument.ctypes.data - base, gradients.itemsize)
            if rest == 0 and 0 <= start < gradients.size:
                ranges.append((start, start + argument.size))
    return ranges

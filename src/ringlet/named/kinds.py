"""The kinds of collectives: what is known of each, once.

A new collective is an entry of :data:`KINDS`. From it follow what ranks compare, what is refused and in which words,
what ranks that have joined may do, and what happens when all ranks have submitted it. ``ringlet.torch.collectives``
and ``ringlet.keras.collectives`` then give it a function each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringlet.comm import arrays
from ringlet.comm.contract import Array, Communicator, Op
from ringlet.errors import CommunicationError
from ringlet.named.reductions import Reduction, finish, is_power_of_two, recipe, scaled
from ringlet.named.submissions import Submission

Run = Callable[[Communicator, Submission, int], list[Array]]
"""Carries a submission out, where all ranks do; gives its results. The number is the root's rank in the set."""


def _nothing(_communicator: Communicator, _submission: Submission, _root: int) -> list[Array]:
    """The round was the barrier."""
    return []


@dataclass(frozen=True)
class Kind:
    """One kind of collective. Arrays must agree in number, dtype and shape on all ranks."""

    run: Run = _nothing
    """Allreduces have none: ``execution`` carries them out, many together."""
    reduces: bool = False
    """``op``, ``prescale`` and ``postscale`` have a meaning, and must agree."""
    has_rows: bool = False
    """It works along axis 0."""
    is_uneven: bool = False
    """The length of axis 0 may differ between ranks."""
    has_splits: bool = False
    """``splits`` have a meaning; they may differ."""
    has_root: bool = False
    """``root`` has a meaning, and must agree."""
    takes_outputs: bool = False
    serves_joined: bool = False
    """It takes place also while some ranks have joined."""


# -- what happens -----------------------------------------------------------------------------------------------------
def _allgather(communicator: Communicator, submission: Submission, _root: int) -> list[Array]:
    return [communicator.allgather(array) for array in submission.inputs]


def _alltoall(communicator: Communicator, submission: Submission, _root: int) -> list[Array]:
    return [part for array in submission.inputs for part in communicator.alltoall(array, submission.splits)]


def _broadcast(communicator: Communicator, submission: Submission, root: int) -> list[Array]:
    outputs = submission.outputs or [None] * len(submission.inputs)
    pairs = zip(submission.inputs, outputs, strict=True)
    return [communicator.broadcast(array, root, out=out) for array, out in pairs]


def _reducescatter(communicator: Communicator, submission: Submission, _root: int) -> list[Array]:
    results = []
    for array in submission.inputs:
        how = recipe(array.dtype, submission.op, submission.prescale, submission.postscale, communicator.size)
        result = communicator.reduce_scatter(scaled(array, how.before), how.op)
        finish(result, how)
        results.append(result)
    return results


KINDS = {
    "allreduce": Kind(reduces=True, takes_outputs=True, serves_joined=True),
    "allgather": Kind(_allgather, has_rows=True, is_uneven=True),
    "broadcast": Kind(_broadcast, has_root=True, takes_outputs=True),
    "alltoall": Kind(_alltoall, has_rows=True, is_uneven=True, has_splits=True),
    "reducescatter": Kind(_reducescatter, reduces=True, has_rows=True),
    "barrier": Kind(serves_joined=True),
    "join": Kind(),
}
_AGREEMENT = Kind()


def kind_of(name: str) -> Kind:
    """What is known of a kind; of what collectives agree on among themselves: nothing special."""
    return KINDS.get(name, _AGREEMENT)


def names_of(ability: str, ending: str = "") -> str:
    """The kinds that can do something, for messages."""
    return " and ".join(name + ending for name, kind in KINDS.items() if getattr(kind, ability))


# -- what is refused --------------------------------------------------------------------------------------------------
def check(submission: Submission, ranks: Sequence[int]) -> None:
    """Raise if what this rank says makes no sense; ``ranks`` are those of the process set."""
    kind = kind_of(submission.kind)
    for array in submission.inputs:
        if kind.reduces:
            _check_reduction(submission, array.dtype, len(ranks))
        else:
            arrays.check_movable(array.dtype)
        if kind.has_rows:
            arrays.check_rows(array, submission.kind)
    if kind.has_root and submission.root not in ranks:
        raise CommunicationError(f"root {submission.root} is not in the process set: expected one of {list(ranks)}")


def check_parts(submission: Submission, size: int) -> None:
    """Raise if what the others need not know does not fit: outputs and splits."""
    kind = kind_of(submission.kind)
    if submission.outputs is not None:
        _check_outputs(submission, submission.outputs, kind)
    if kind.has_splits:
        for array in submission.inputs:
            arrays.check_rows(array, submission.kind)
            arrays.check_splits(len(array), submission.splits, size)


def _check_reduction(submission: Submission, dtype: np.dtype[Any], size: int) -> None:
    op = submission.op
    arrays.check_reduction(dtype, Op.SUM)
    if not (math.isfinite(submission.prescale) and math.isfinite(submission.postscale)):
        raise CommunicationError(f"scales {submission.prescale} and {submission.postscale}: expected finite numbers")
    has_scale = (submission.prescale, submission.postscale) != (1.0, 1.0)
    if dtype.kind == "b" and (has_scale or op is Reduction.AVERAGE):
        raise CommunicationError("booleans have no average and no scale: expected op sum (or), min, max or product")
    if op is not Reduction.ADASUM:
        return
    if kind_of(submission.kind).has_rows:
        raise CommunicationError(f"Adasum needs whole arrays: expected another op for {submission.kind}")
    if dtype.kind != "f" and not arrays.is_half(dtype):
        raise CommunicationError(f"Adasum of dtype {dtype.name}: expected a floating dtype")
    if not is_power_of_two(size):
        raise CommunicationError(f"Adasum among {size} ranks: expected a power of two, as ranks are combined in pairs")


def _check_outputs(submission: Submission, outputs: Sequence[Array], kind: Kind) -> None:
    if not kind.takes_outputs or len(outputs) != len(submission.inputs):
        raise CommunicationError(
            f"{len(outputs)} outputs for {len(submission.inputs)} inputs of {submission.kind}: expected one each, and "
            f"only for {names_of('takes_outputs')}"
        )
    for array, out in zip(submission.inputs, outputs, strict=True):
        if out is array and array.flags.writeable:
            continue
        arrays.result_array(array, out)

"""From symbolic calls to functions without arguments: a step is a loop over them.

Calls that are the same in every step are prepared by the kernels, and neighbours among them become one function. What
changes from step to step (samples, their number, the random key) is read from one mutable :class:`StepContext`.

:func:`final_ranges` knows which call finishes which gradients: an exchange may begin with those elements while the
backward pass goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.dropout import mix
from ringlet.engines.heads import Head, TargetEncoder
from ringlet.kernels.bfloat16 import widen
from ringlet.kernels.contract import Floats, Kernels
from ringlet.kernels.reference.losses import loss_by
from ringlet.kernels.reference.mixed import mixed
from ringlet.operations.native import Call

Action = Callable[[], object]

BoundCall = tuple[str, list[Any], dict[str, Any]]
"""A kernel's name, its arrays, its options."""


@dataclass(slots=True)
class StepContext:
    """The run-time values of a step."""

    encoder: TargetEncoder
    inputs: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    targets: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    outputs: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    weights: NDArray[Any] | None = None
    num_samples: int = 0
    scale: float = 1.0
    key: int = 0
    loss_sum: float = 0.0


def bind(kernels: Kernels, context: StepContext, calls: Iterable[BoundCall]) -> tuple[Action, ...]:
    """The calls in order; kernels that read run-time values get them from ``context``."""
    actions: list[Action] = []
    for takes_context, group in groupby(calls, key=lambda call: call[0] in _BINDERS):
        if takes_context:
            actions.extend(_BINDERS[kernel](kernels, context, arrays, options) for kernel, arrays, options in group)
        else:
            actions.append(kernels.in_turn([kernels.prepare(*call) for call in group]))
    return tuple(actions)


def _bind_pack(kernels: Kernels, context: StepContext, arrays: Sequence[Any], _: dict[str, Any]) -> Action:
    (out,) = arrays
    return lambda: kernels.pack(context.inputs, out)


def _bind_unpack(kernels: Kernels, context: StepContext, arrays: Sequence[Any], _: dict[str, Any]) -> Action:
    (activations,) = arrays
    return lambda: kernels.unpack(activations, context.outputs)


def _bind_targets(_: Kernels, context: StepContext, arrays: Sequence[Any], __: dict[str, Any]) -> Action:
    (out,) = arrays
    return lambda: context.encoder.write(context.targets, out)


def _bind_loss(kernels: Kernels, context: StepContext, arrays: Sequence[Any], _: dict[str, Any]) -> Action:
    """The loss's kernel where it has one and nothing is weighted, else its functions of NumPy."""
    head, prediction, target, dprediction = arrays
    kernel = None if head.kernel is None else partial(kernels.loss, head.kernel, prediction, target, dprediction)
    general = partial(_loss_in_numpy, head, prediction, dprediction, context)
    weighted_classes = context.encoder.class_weights is not None

    def run() -> None:
        if kernel is None or weighted_classes or context.weights is not None:
            context.loss_sum = general()
        else:
            context.loss_sum = kernel(n=context.num_samples, scale=context.scale)

    return run


_loss_by = mixed(loss_by)


def _loss_in_numpy(head: Head, prediction: Floats, dprediction: Floats | None, context: StepContext) -> float:
    encoder, targets = context.encoder, context.targets
    weight = encoder.weights(targets, context.weights)
    target = np.moveaxis(encoder.arranged(targets), 0, -1)
    weight = None if weight is None else np.moveaxis(weight, 0, -1)

    def values_and_gradient(samples: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        return head.loss.gradient(samples, target, weight, logits=head.skips_last_node)

    return _loss_by(values_and_gradient, prediction, dprediction, n=context.num_samples, scale=context.scale)


def _bind_batch_norm(name: str, kernels: Kernels, context: StepContext, arrays: Any, options: dict[str, Any]) -> Action:
    function = partial(getattr(kernels, name), *arrays, **options)
    return lambda: function(n=context.num_samples)


def _bind_dropout(kernels: Kernels, context: StepContext, arrays: Sequence[Any], options: dict[str, Any]) -> Action:
    layer = options["layer"]
    function = partial(kernels.dropout, *arrays, rate=options["rate"], accumulate=options["accumulate"])
    return lambda: function(key=mix(context.key, layer))


def _bind_copy(_: Kernels, __: StepContext, arrays: Sequence[Any], ___: dict[str, Any]) -> Action:
    return partial(np.copyto, *arrays)


def _bind_widen(_: Kernels, __: StepContext, arrays: Sequence[Any], ___: dict[str, Any]) -> Action:
    return partial(widen, *arrays)


_BINDERS: dict[str, Callable[[Kernels, StepContext, Sequence[Any], dict[str, Any]], Action]] = {
    "pack": _bind_pack,
    "unpack": _bind_unpack,
    "targets": _bind_targets,
    "loss": _bind_loss,
    "batch_norm_forward_train": partial(_bind_batch_norm, "batch_norm_forward_train"),
    "batch_norm_backward": partial(_bind_batch_norm, "batch_norm_backward"),
    "dropout": _bind_dropout,
    "copy": _bind_copy,
    "widen": _bind_widen,
}


# -- when each gradient is final ---------------------------------------------------------------------------------------
Range = tuple[int, int]
"""First element and the one after the last."""


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
        first_cell, end_cell = np.searchsorted(cuts, part)
        last[first_cell:end_cell] = index
    edges = [0, *(np.flatnonzero(np.diff(last)) + 1).tolist(), last.size] if last.size else [0]
    ranges: dict[int, tuple[Range, ...]] = {}
    for first_cell, end_cell in pairwise(edges):
        index = int(last[first_cell])
        ranges[index] = (*ranges.get(index, ()), (int(cuts[first_cell]), int(cuts[end_cell])))
    return ranges


def backward_parts(ranges: dict[int, tuple[Range, ...]], num_forward: int, num_calls: int) -> list[BackwardPart]:
    """Cut the calls of a training step after the first ``num_forward`` wherever gradients become final."""
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

"""From symbolic calls to functions without arguments: a step is a loop over them.

Calls that are the same in every step are prepared by the kernels, and neighbours among them become one function. What
changes from step to step (samples, their number, the random key) is read from one mutable :class:`StepContext`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.keys import mix
from ringlet.engines.targets import TargetEncoder
from ringlet.kernels.contract import Kernels

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
    function = partial(kernels.loss, *arrays)

    def run() -> None:
        context.loss_sum = function(n=context.num_samples, scale=context.scale)

    return run


def _bind_batch_norm(name: str, kernels: Kernels, context: StepContext, arrays: Any, options: dict[str, Any]) -> Action:
    function = partial(getattr(kernels, name), *arrays, **options)
    return lambda: function(n=context.num_samples)


def _bind_dropout(kernels: Kernels, context: StepContext, arrays: Sequence[Any], options: dict[str, Any]) -> Action:
    layer = options["layer"]
    function = partial(kernels.dropout, *arrays, rate=options["rate"], accumulate=options["accumulate"])
    return lambda: function(key=mix(context.key, layer))


def _bind_copy(_: Kernels, __: StepContext, arrays: Sequence[Any], ___: dict[str, Any]) -> Action:
    return partial(np.copyto, *arrays)


_BINDERS: dict[str, Callable[[Kernels, StepContext, Sequence[Any], dict[str, Any]], Action]] = {
    "pack": _bind_pack,
    "unpack": _bind_unpack,
    "targets": _bind_targets,
    "loss": _bind_loss,
    "batch_norm_forward_train": partial(_bind_batch_norm, "batch_norm_forward_train"),
    "batch_norm_backward": partial(_bind_batch_norm, "batch_norm_backward"),
    "dropout": _bind_dropout,
    "copy": _bind_copy,
}

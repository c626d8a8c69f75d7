"""PyTorch: gradients are there when the optimizer is asked to apply them, so they are read and written directly."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from ringlet.comm.contract import Array
from ringlet.keras.backends import unconverted
from ringlet.keras.exchange import GradientExchange


def exchange(exchange: GradientExchange, gradients: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`; the results lie in buffers that the next step uses again."""
    return call(exchange.reduce, gradients)


@unconverted
def call(function: Callable[[list[Array]], list[Array]], tensors: Sequence[Any]) -> list[Any]:
    """See :class:`ringlet.keras.backends.Backend`; what ``torch.compile`` compiles is left for it."""
    results = function([_to_numpy(tensor) for tensor in tensors])
    return [_to_tensor(result, tensor) for result, tensor in zip(results, tensors, strict=True)]


def is_symbolic(value: Any) -> bool:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`; nothing is traced."""
    return False


def dense(gradient: Any, variable: Any) -> Any:  # noqa: ARG001
    """See :class:`ringlet.keras.backends.Backend`."""
    return gradient.to_dense() if gradient.layout is not torch.strided else gradient


def settle(tensors: Sequence[Any]) -> None:
    """See :class:`ringlet.keras.backends.Backend`; values are there at once."""


def are_reduced_elsewhere(variables: Sequence[Any]) -> bool:
    """See :class:`ringlet.keras.backends.Backend`: whether a ``DistributedDataParallel`` has these parameters.

    Keras from 3.16 on wraps models by itself once ``torch.distributed`` is initialised. Asking is slow: all objects of
    the process are looked at.
    """
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return False
    wanted = {id(variable.value) for variable in variables}
    wrapper = torch.nn.parallel.DistributedDataParallel
    wrapped = [found for found in gc.get_objects() if issubclass(type(found), wrapper)]
    return any(id(parameter) in wanted for model in wrapped for parameter in model.module.parameters())


def check_model(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`."""


def forget_traces(model: Any) -> None:
    """See :class:`ringlet.keras.backends.Backend`."""
    model.train_function = None


def _to_numpy(tensor: Any) -> Array:
    """The tensor's memory where it is on the CPU; NumPy has no bfloat16 of its own."""
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(tensor.numpy())


def _to_tensor(array: Array, like: Any) -> Any:
    if like.dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(like.device)
    return torch.from_numpy(array).to(like.device)

"""PyTorch: computed as it is written, differentiated by autograd; on the processor without copies of the parameters."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch as typed_torch
from keras.src.backend.torch.core import get_device
from numpy.typing import NDArray

from ringlet.engines.contract import FlatTensors, Floats
from ringlet.engines.keras.backends import Arrays, Buffers, Infer, Inference, Step, Training
from ringlet.engines.torch.module_spec import seeded as torch_seeded
from ringlet.errors import UsageError

torch: Any = typed_torch


def set_threads(number: int) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    torch.set_num_threads(number)


def allow(dtype: np.dtype[Any]) -> None:
    """See :class:`ringlet.engines.keras.backends.Backend`."""
    if dtype == np.float64:
        raise UsageError(
            "dtype = float64 and Keras on PyTorch exclude each other: Keras multiplies matrices in float32 there. Give "
            "engine = torch, or set KERAS_BACKEND=tensorflow or jax"
        )


def seeded(key: int) -> AbstractContextManager[None]:
    """See :class:`ringlet.engines.keras.backends.Backend`; dropout takes PyTorch's generator."""
    return torch_seeded(key)


def compile_training(step: Step, buffers: Buffers) -> Training:
    """See :class:`ringlet.engines.keras.backends.Backend`."""

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, scale: float, outputs: Floats) -> float:
        parameters = [tensor.detach().requires_grad_() for tensor in _tensors(buffers.parameters)]
        factors = [_tensor(mask) for mask in masks]
        loss, result, new_state = step(parameters, _tensors(buffers.state), _tensor(images), _tensor(targets), factors)
        np.copyto(outputs, _array(result))
        if parameters:
            found = torch.autograd.grad(loss * scale, parameters, allow_unused=True, materialize_grads=True)
            _fill(buffers.gradients, found)
        _fill(buffers.state, new_state)
        return float(loss.item())

    return run


def compile_inference(infer: Infer, buffers: Buffers) -> Inference:
    """See :class:`ringlet.engines.keras.backends.Backend`."""

    def run(images: NDArray[Any], targets: NDArray[Any], masks: Arrays, outputs: Floats) -> float:
        with torch.no_grad():
            parameters, state = _tensors(buffers.parameters), _tensors(buffers.state)
            factors = [_tensor(mask) for mask in masks]
            loss, result = infer(parameters, state, _tensor(images), _tensor(targets), factors)
        np.copyto(outputs, _array(result))
        return float(loss.item())

    return run


def _tensor(array: NDArray[Any]) -> Any:
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(get_device())


def _tensors(flat: FlatTensors) -> list[Any]:
    return [_tensor(view) for view in flat.views.values()]


def _array(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def _fill(flat: FlatTensors, values: Any) -> None:
    for view, value in zip(flat.views.values(), values, strict=True):
        np.copyto(view, _array(value))

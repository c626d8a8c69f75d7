"""The operations that losses are written in, under the names of ``keras.ops``, in PyTorch."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from torch.nn import functional


@final
class TorchOps:
    """Functions of tensors; ``axis`` is what PyTorch calls ``dim``."""

    absolute = staticmethod(torch.abs)
    exp = staticmethod(torch.exp)
    expm1 = staticmethod(torch.expm1)
    log = staticmethod(torch.log)
    log1p = staticmethod(torch.log1p)
    ones_like = staticmethod(torch.ones_like)
    reshape = staticmethod(torch.reshape)
    sigmoid = staticmethod(torch.sigmoid)
    softplus = staticmethod(functional.softplus)
    sqrt = staticmethod(torch.sqrt)
    square = staticmethod(torch.square)
    tanh = staticmethod(torch.tanh)
    where = staticmethod(torch.where)
    zeros_like = staticmethod(torch.zeros_like)

    @staticmethod
    def sum(values: Tensor, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Tensor:
        """Over some axes, or all."""
        return values.sum() if axis is None else values.sum(axis, keepdim=keepdims)

    @staticmethod
    def mean(values: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
        """Over some axes, or all."""
        return values.mean() if axis is None else values.mean(axis)

    @staticmethod
    def clip(values: Tensor, low: float, high: float) -> Tensor:
        """Within two numbers."""
        return values.clamp(low, high)

    @staticmethod
    def maximum(values: Tensor, other: Tensor | float) -> Tensor:
        """The larger ones."""
        return torch.maximum(values, other) if isinstance(other, Tensor) else values.clamp(min=other)

    @staticmethod
    def minimum(values: Tensor, other: Tensor | float) -> Tensor:
        """The smaller ones."""
        return torch.minimum(values, other) if isinstance(other, Tensor) else values.clamp(max=other)

    @staticmethod
    def softmax(values: Tensor, axis: int) -> Tensor:
        """Probabilities along an axis."""
        return values.softmax(axis)

    @staticmethod
    def log_softmax(values: Tensor, axis: int) -> Tensor:
        """Their logarithms."""
        return values.log_softmax(axis)

    @staticmethod
    def one_hot(classes: Tensor, num_classes: int, axis: int, dtype: torch.dtype) -> Tensor:
        """Ones at the classes along a new axis."""
        shape = (*classes.shape[:axis], num_classes, *classes.shape[axis:])
        zeros = torch.zeros(shape, dtype=dtype, device=classes.device)
        return zeros.scatter_(axis, classes.unsqueeze(axis), 1.0)

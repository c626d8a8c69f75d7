"""Batch normalisation over the batches of all ranks, on any device."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.autograd import Function
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from ringlet.named import ArgumentsError, ProcessSet, Reduction, session
from ringlet.named.horovod import Scaling
from ringlet.named.session import global_process_set
from ringlet.torch.operations import allreduce

_SUM = Scaling(Reduction.SUM)


class SyncBatchNorm(_BatchNorm):
    """As ``BatchNorm1d``, ``2d`` and ``3d`` over the joined batch of all ranks; batches may differ in size.

    Forward and backward passes in training are collective: every rank of the process set must run them. A rank that
    has joined counts with no samples. Gradients of weight and bias are this rank's part, as for any other layer.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        **options: Any,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)
        self.process_set = process_set

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """The normalised input, of shape (N, C, …)."""
        self._check_input_dim(input)
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or not session.is_initialized() or self.process_set.size() == 1:
            return self._local(input, uses_batch)
        factor = self._count_batch()
        normalized, mean, variance, count = _normalize(input, self.weight, self.bias, self.eps, self.process_set)
        if self.training and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                unbiased = variance * (count / (count - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
        return normalized

    def _local(self, input: Tensor, uses_batch: bool) -> Tensor:  # noqa: A002
        factor = self._count_batch() if self.training else 0.0
        tracks = not self.training or self.track_running_stats
        mean, variance = (self.running_mean, self.running_var) if tracks else (None, None)
        return F.batch_norm(input, mean, variance, self.weight, self.bias, uses_batch, factor, self.eps)

    def _count_batch(self) -> float:
        """The weight of this batch in the running statistics; without a momentum they are plain averages."""
        if not self.training or not self.track_running_stats or self.num_batches_tracked is None:
            return 0.0 if self.momentum is None else self.momentum
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise ArgumentsError(
                f"an input of shape {tuple(input.shape)}: expected (N, {self.num_features}, …), at least 2 dimensions"
            )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_set: ProcessSet = global_process_set) -> Module:
        """``module`` with every batch normalisation in it replaced by this one, over the same parameters."""
        made: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            affine, tracks = module.affine, module.track_running_stats
            made = cls(module.num_features, module.eps, module.momentum, affine, tracks, process_set)
            made.training = module.training
            made._parameters, made._buffers = module._parameters, module._buffers
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_set))
        return made


def _normalize(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, process_set: ProcessSet
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Result, mean, variance (biased) and number of samples over all ranks."""
    result = _SyncBatchNormFunction.apply(x, weight, bias, eps, process_set)  # type: ignore[no-untyped-call]
    normalized, mean, variance, count = result
    return normalized, mean, variance, count


class _SyncBatchNormFunction(Function):
    """Let x̂ = (x - mean) / sqrt(variance + eps) over all M samples of all ranks. Then y = w x̂ + b and

    dx = w / sqrt(variance + eps) (dy - Σ dy / M - x̂ Σ (dy x̂) / M), with sums over all ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, process_set: ProcessSet
    ) -> Any:
        mean, variance, count = _joint_statistics(x, process_set)
        scale, shift = (None if tensor is None else tensor.to(mean.dtype) for tensor in (weight, bias))
        y = F.batch_norm(x.to(mean.dtype), mean, variance, scale, shift, training=False, eps=eps).to(x.dtype)
        ctx.save_for_backward(x, weight, mean, variance, count)
        ctx.has_bias, ctx.eps, ctx.process_set = bias is not None, eps, process_set
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Any) -> Any:
        x, weight, mean, variance, count = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.dim() - 2)
        wide = mean.dtype
        inverse = torch.rsqrt(variance + ctx.eps)
        normalized = (x.to(wide) - mean.view(shape)) * inverse.view(shape)
        slope = dy.to(wide)
        dimensions = [0, *range(2, x.dim())]
        own_bias, own_weight = slope.sum(dimensions), (slope * normalized).sum(dimensions)
        dx = None
        if ctx.needs_input_grad[0]:
            both = torch.stack([own_bias, own_weight])
            (sums,) = allreduce([both], _SUM, ctx.process_set)
            means = sums / count
            scale = inverse if weight is None else inverse * weight.to(wide)
            dx = (slope - means[0].view(shape) - normalized * means[1].view(shape)) * scale.view(shape)
            dx = dx.to(x.dtype)
        dweight = None if weight is None else own_weight.to(weight.dtype)
        return (
            dx,
            dweight,
            own_bias.to(weight.dtype if weight is not None else wide) if ctx.has_bias else None,
            None,
            None,
        )


def _joint_statistics(x: Tensor, process_set: ProcessSet) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and number of samples of all ranks' batches.

    Every rank fills its row of a table of zeros (number, means, sums of squared distances); the sum of all tables has
    all rows. Rows are then merged as Chan et al. do, which loses no digits where means are large.
    """
    collectives = session.collectives(process_set)
    wide = x.dtype if x.dtype is torch.float64 else torch.float32
    channels = x.shape[1]
    num_own = x.numel() // channels if channels else 0
    table = torch.zeros(collectives.size, 1 + 2 * channels, dtype=wide)
    if num_own:
        dimensions = [0, *range(2, x.dim())]
        variance, mean = torch.var_mean(x.to(wide), dimensions, correction=0)
        row = table[collectives.rank]
        row[0] = num_own
        row[1 : 1 + channels], row[1 + channels :] = mean, variance * num_own
    (table,) = allreduce([table], _SUM, process_set)
    counts, means, squares = table[:, :1], table[:, 1 : 1 + channels], table[:, 1 + channels :]
    count = counts.sum()
    if count <= 1:
        raise ArgumentsError(
            f"batch normalisation in training over {int(count)} value(s) per channel: expected more than one"
        )
    mean = (counts * means).sum(0) / count
    variance = (squares + counts * (means - mean) ** 2).sum(0) / count
    return mean.to(x.device), variance.to(x.device), count.to(x.device)

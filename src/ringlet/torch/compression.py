"""What travels instead of a tensor: ``Compression.none``, ``Compression.fp16`` and ``Compression.bf16``.

Sums are accumulated in float32 and rounded once, whatever travels. Own methods derive from :class:`Compressor`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor


class Compressor:
    """A way to make tensors smaller before they travel, and to undo it."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor that travels, and what :meth:`decompress` will need to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """The tensor as it was, up to rounding."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    wire_dtype: ClassVar[torch.dtype | None] = None

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:  # noqa: ARG004
        """The tensor itself."""
        return tensor


class FP16Compressor(Compressor):
    """Floating tensors travel as float16: 11 significant bits, up to 65504."""

    wire_dtype: ClassVar[torch.dtype | None] = torch.float16

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Floats only."""
        return (tensor.to(torch.float16), tensor.dtype) if tensor.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """To the dtype that it had."""
        return tensor if ctx is None else tensor.to(ctx)


class BF16Compressor(Compressor):
    """Floating tensors travel as bfloat16: 8 significant bits, the range of float32."""

    wire_dtype: ClassVar[torch.dtype | None] = torch.bfloat16

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """Floats only."""
        return (tensor.to(torch.bfloat16), tensor.dtype) if tensor.is_floating_point() else (tensor, None)

    @staticmethod
    def decompress(tensor: Tensor, ctx: Any) -> Tensor:
        """To the dtype that it had."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The methods by name."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

"""Smaller numbers on the wire: values are cast before they are exchanged, and back afterwards."""

from __future__ import annotations

from typing import Any, Protocol, final

import keras
import ml_dtypes
import numpy as np

_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


class Compressor(Protocol):
    """A way to make values smaller; own ones may be passed wherever ``compression`` is asked for."""

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """What is sent, and what :meth:`decompress` needs to know."""

    def decompress(self, tensor: Any, context: Any) -> Any:
        """What came, as it was before."""


@final
class NoCompression:
    """Values travel as they are."""

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    def decompress(self, tensor: Any, context: Any) -> Any:  # noqa: ARG002
        """The tensor itself."""
        return tensor


@final
class CastCompression:
    """Floating values that are wider travel as ``dtype``; sums are made in float32 and rounded once more.

    float16 has 11 significant bits but ends at 65504: larger values become infinite. bfloat16 has 8 bits and the range
    of float32, so it is the one to take together with loss scaling.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def compress(self, tensor: Any) -> tuple[Any, Any]:
        """Cast floating values; the context is their dtype."""
        name = keras.backend.standardize_dtype(tensor.dtype)
        if _BITS.get(name, 0) <= _BITS[self.dtype]:
            return tensor, None
        return _cast(tensor, self.dtype), name

    def decompress(self, tensor: Any, context: Any) -> Any:
        """Cast back."""
        return tensor if context is None else _cast(tensor, context)


class Compression:
    """The choices: ``Compression.none``, ``Compression.fp16``, ``Compression.bf16``."""

    none: Compressor = NoCompression()
    fp16: Compressor = CastCompression("float16")
    bf16: Compressor = CastCompression("bfloat16")


def _cast(tensor: Any, dtype: str) -> Any:
    if isinstance(tensor, np.ndarray):
        with np.errstate(over="ignore"):
            return tensor.astype(_numpy_dtype(dtype))
    return keras.ops.cast(tensor, dtype)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    return found

"""Sums of gradients with less traffic: for links between machines that are slow beside the computation.

Every rank must use the same compression with the same keys in the same order. The result is the same bits on all ranks,
but not the exact sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from math import ceil, inf
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, final

import numpy as np

from ringlet.comm.contract import Array, Communicator
from ringlet.component import Component, Registry, required
from ringlet.errors import ConfigError

_LARGEST_BFLOAT16 = 3.3895e38


class Compression(Protocol):
    """A way to add up flat floating arrays over ranks."""

    name: str
    largest: float
    """Sums of values that are finite stay so if the values' magnitudes add up to at most this much."""

    @property
    def residuals(self) -> Mapping[Hashable, Array]:
        """The residual of this rank, what it has not sent yet, for each key."""

    def allreduce(self, comm: Communicator, array: Array, *, out: Array, key: Hashable = None) -> Array:
        """The sum of ``array`` over all ranks into ``out`` (may be ``array``).

        ``key`` tells apart the arrays that are added up in turn, for methods that keep residuals.
        """

    def accept(self) -> None:
        """What was added up since the last call is used: it cannot be undone any more."""

    def undo(self) -> None:
        """Drop what was added up since the last :meth:`accept`: residuals are again what they were then."""


class _WithoutResiduals:
    """Part of a compression that keeps no residuals."""

    residuals: Mapping[Hashable, Array] = MappingProxyType({})

    def accept(self) -> None:
        """There are no residuals."""

    def undo(self) -> None:
        """There are no residuals."""


@final
class NoCompression(_WithoutResiduals):
    """The exact sum."""

    name = "none"
    largest = inf

    def allreduce(self, comm: Communicator, array: Array, *, out: Array, key: Hashable = None) -> Array:  # noqa: ARG002
        """As the communicator does it."""
        return comm.allreduce(array, out=out)


@final
class HalfPrecision(_WithoutResiduals):
    """Values travel in 16 bits: half the traffic of float32.

    Ranks' values are rounded to ``dtype``, added up in float32 and rounded once more. float16 has 11 significant bits
    but ends at 65504: larger values become infinite (see :attr:`Compression.largest`). bfloat16 has 8 bits and
    float32's range.
    """

    def __init__(self, dtype: str) -> None:
        """``float16`` or ``bfloat16``."""
        self._dtype = _half_dtype(dtype)
        self.name = "fp16" if dtype == "float16" else "bf16"
        self.largest = 65504.0 if dtype == "float16" else _LARGEST_BFLOAT16

    def allreduce(self, comm: Communicator, array: Array, *, out: Array, key: Hashable = None) -> Array:  # noqa: ARG002
        """Round, sum, widen."""
        with np.errstate(over="ignore"):
            encoded = array.astype(self._dtype)
            comm.allreduce(encoded, out=encoded)
        np.copyto(out, encoded.astype(array.dtype))
        return out


@final
class TopK:
    """Only the largest values travel; the rest is a residual that is added next time (error feedback).

    With the residual e of this rank and ``key``: c = array + e; the ``ceil(ratio n)`` elements of c with the largest
    magnitudes are sent as pairs of index and value, e becomes c without them (Stich, Cordonnier and Jaggi, *Sparsified
    SGD with memory*, 2018). Nothing is lost, only delayed. Traffic per rank: about ``2 ratio n W`` numbers for W ranks,
    so this pays for small ratios and few machines.
    """

    def __init__(self, ratio: float) -> None:
        """``ratio``: the part of all elements that is sent, above 0 and at most 1."""
        if not 0.0 < ratio <= 1.0:
            raise ConfigError(
                f"top-k with ratio {ratio} makes no sense: expected more than 0 and at most 1, as in topk:0.01"
            )
        self.ratio = ratio
        self.name = f"topk:{ratio:g}"
        self.largest = 0.0  # residuals come on top, and no one knows how much they are
        self.residuals: dict[Hashable, Array] = {}
        """The residual of this rank, what it has not sent yet, for each key."""
        self._before: dict[Hashable, Array | None] = {}
        """Residuals when the last exchange was accepted."""

    def allreduce(self, comm: Communicator, array: Array, *, out: Array, key: Hashable = None) -> Array:
        """Add the residual, send the largest, add up what came in the order of ranks."""
        residual = self.residuals.get(key)
        if residual is not None and (residual.size != array.size or residual.dtype != array.dtype):
            raise ConfigError(
                f"top-k was given {array.size} elements of {array.dtype.name} under the key {key!r}, which had "
                f"{residual.size} of {residual.dtype.name} before: use one key for each array"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            corrected = array.reshape(-1).copy() if residual is None else array.reshape(-1) + residual
        chosen = _largest(corrected, ceil(self.ratio * array.size))
        indices, values = comm.allgather(chosen), comm.allgather(corrected[chosen])
        corrected[chosen] = 0
        self._before.setdefault(key, residual)
        self.residuals[key] = corrected
        total = np.zeros(array.size, array.dtype)
        for start in range(0, indices.size, max(chosen.size, 1)):  # each rank sends as many, each index once
            part = slice(start, start + chosen.size)
            with np.errstate(over="ignore", invalid="ignore"):
                total[indices[part]] += values[part]
        np.copyto(out, total.reshape(out.shape))
        return out

    def accept(self) -> None:
        """The residuals of now count."""
        self._before.clear()

    def undo(self) -> None:
        """The residuals of before, without anything of the gradients that came since."""
        for key, residual in self._before.items():
            if residual is None:
                del self.residuals[key]
            else:
                self.residuals[key] = residual
        self._before.clear()


COMPRESSIONS: Registry[type[CompressionConfig]] = Registry(
    "compression", package="ringlet.comm.compression", group="compressions"
)


class CompressionConfig(Component, ABC):
    """A compression by its name and options; :meth:`build` makes one, with nothing left out so far."""

    registry: ClassVar[Registry[Any] | None] = COMPRESSIONS

    @abstractmethod
    def build(self) -> Compression:
        """The compression."""


@final
class Exact(CompressionConfig):
    """The exact sum."""

    name: ClassVar[str] = "none"

    def build(self) -> NoCompression:
        """The compression."""
        return NoCompression()


@final
class Float16(CompressionConfig):
    """Half the traffic: 11 significant bits, values up to 65504."""

    name: ClassVar[str] = "fp16"

    def build(self) -> HalfPrecision:
        """The compression."""
        return HalfPrecision("float16")


@final
class BFloat16(CompressionConfig):
    """Half the traffic: 8 significant bits, the range of float32."""

    name: ClassVar[str] = "bf16"

    def build(self) -> HalfPrecision:
        """The compression."""
        return HalfPrecision("bfloat16")


@final
class LargestShare(CompressionConfig):
    """Only the largest values travel; the rest is added next time."""

    name: ClassVar[str] = "topk"
    argument: ClassVar[str] = "share"
    share: float = required("part of all values that is sent, such as 0.01", gt=0, le=1)

    def build(self) -> TopK:
        """The compression."""
        return TopK(self.share)


def parse_compression(text: str) -> Compression:
    """The compression that ``text`` names: ``none``, ``fp16``, ``bf16`` or ``topk:SHARE`` as in ``topk:0.01``."""
    config: CompressionConfig = COMPRESSIONS.parse(text)
    return config.build()


def _largest(values: Array, count: int) -> Array:
    """Indices of the ``count`` values with the largest magnitudes, NaN first, ascending."""
    if count >= values.size:
        return np.arange(values.size, dtype=_index_dtype(values.size))
    chosen = np.argpartition(np.abs(values), values.size - count)[values.size - count :]
    return np.sort(chosen).astype(_index_dtype(values.size))


def _index_dtype(size: int) -> type[np.unsignedinteger[Any]]:
    return np.uint32 if size <= 1 << 32 else np.uint64


def _half_dtype(name: str) -> np.dtype[Any]:
    if name == "float16":
        return np.dtype(np.float16)
    if name != "bfloat16":
        raise ConfigError(f"unknown 16-bit dtype '{name}': expected float16 or bfloat16")
    try:
        import ml_dtypes
    except ImportError as error:
        raise ConfigError(
            f"bfloat16 needs the package ml_dtypes ({error}): pip install ml_dtypes, or use fp16"
        ) from error
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16

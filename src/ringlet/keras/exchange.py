"""What happens to gradients between ranks, in NumPy: they are reduced in flat buffers, one for each dtype.

Each buffer ends with a one. Ranks that have joined (no steps left in this epoch) contribute zeros to all sums, so that
element tells how many ranks took part: an average is one over those ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import keras
import ml_dtypes
import numpy as np

from ringlet.comm.contract import Array
from ringlet.errors import UsageError
from ringlet.named import ProcessSet, Reduction, Submission, session
from ringlet.named.failures import noted
from ringlet.named.horovod import CastCompressor, Compressor

Layout = tuple[tuple[str, tuple[int, ...]], ...]


class ArgumentError(UsageError, ValueError):
    """An argument, or a way of training, that cannot work with several ranks."""


# -- what travels in place of a value ---------------------------------------------------------------------------------
class _ValueCompressor(CastCompressor):
    @staticmethod
    def dtype_of(tensor: Any) -> str:
        """The name of its dtype."""
        return str(keras.backend.standardize_dtype(tensor.dtype))

    @staticmethod
    def cast(tensor: Any, dtype: str) -> Any:
        """The same values in another dtype; NumPy has no bfloat16 of its own."""
        if not isinstance(tensor, np.ndarray):
            return keras.ops.cast(tensor, dtype)
        with np.errstate(over="ignore"):
            return tensor.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


class NoneCompressor(_ValueCompressor):
    """Values travel as they are."""


class FP16Compressor(_ValueCompressor):
    """Floating values travel as float16: 11 significant bits, up to 65504."""

    wire = "float16"


class BF16Compressor(_ValueCompressor):
    """Floating values travel as bfloat16: 8 significant bits, the range of float32."""

    wire = "bfloat16"


class Compression:
    """What travels: ``Compression.none``, ``Compression.fp16`` and ``Compression.bf16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


# -- gradients --------------------------------------------------------------------------------------------------------
@final
class GradientExchange:
    """Reduces one optimizer's gradients over a process set.

    ``name`` must be the same on all ranks. ``prescale`` and ``postscale`` are factors before and after the reduction.
    """

    def __init__(
        self,
        name: str,
        *,
        op: Reduction = Reduction.AVERAGE,
        prescale: float = 1.0,
        postscale: float = 1.0,
        compression: type[Compressor] = Compression.none,
        process_set: ProcessSet | None = None,
    ) -> None:
        self.name = name
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.compression = compression
        self.process_set = process_set
        self.num_exchanges = 0
        """How many reductions this rank has taken part in."""
        self.is_needed: bool | None = None
        """Whether gradients are exchanged at all; None until the first step."""
        self.local_variables: set[int] = set()
        """Variables whose gradients stay on this rank, by ``id``."""
        self.scale_local_gradients = True
        """Whether those are divided by the number of ranks, as an average divides the others."""
        self._buffers: dict[Layout, list[Array]] = {}

    @property
    def size(self) -> int:
        """The number of ranks that this one exchanges with; 1 if it is not in the process set."""
        return session.collectives(self.process_set).size if self.takes_part else 1

    @property
    def takes_part(self) -> bool:
        """Whether this rank is in the process set; others keep their gradients."""
        return self.process_set is None or self.process_set.included()

    def reduce_flat(self, flats: Sequence[Array]) -> list[Array]:
        """Reduce buffers of different dtypes together, each with a one at its end; in place where that is possible."""
        if not self.takes_part:
            return [flat * flat.dtype.type(self.prescale * self.postscale) for flat in flats]
        outputs = tuple(flat if flat.flags.writeable else np.empty_like(flat) for flat in flats)
        collectives = session.collectives(self.process_set)
        how = self.op, self.prescale, self.postscale
        with noted():
            collectives.run(Submission("allreduce", self.name, tuple(flats), outputs, *how))
        self.num_exchanges += 1
        if self.op is Reduction.AVERAGE:
            for flat in outputs:
                self._correct(flat, collectives.size)
        return list(outputs)

    def reduce(self, arrays: Sequence[Array]) -> list[Array]:
        """Reduce arrays of any shapes. The results are views of buffers that the next call uses again."""
        if self.op is Reduction.ADASUM and self.takes_part:
            return self._combine_each(arrays)
        layout = tuple((array.dtype.name, array.shape) for array in arrays)
        buffers = self._buffers.get(layout)
        if buffers is None:
            buffers = self._buffers[layout] = _make_buffers(arrays)
        views = _views(arrays, buffers)
        for view, array in zip(views, arrays, strict=True):
            np.copyto(view, array)
        for buffer in buffers:
            buffer[-1] = 1
        return _views(arrays, self.reduce_flat(buffers))

    def _combine_each(self, arrays: Sequence[Array]) -> list[Array]:
        """Adasum looks at the directions of arrays, so each is combined by itself."""
        how = self.op, self.prescale, self.postscale
        with noted():
            results = session.collectives(self.process_set).run(
                Submission("allreduce", self.name, tuple(arrays), None, *how)
            )
        self.num_exchanges += 1
        return results

    def _correct(self, flat: Array, size: int) -> None:
        """An average over all ranks becomes one over those that took part."""
        share = float(flat[-1]) / (self.prescale * self.postscale)
        num_active = round(share * size)
        if 0 < num_active < size:
            flat *= flat.dtype.type(size / num_active)


def _make_buffers(arrays: Sequence[Array]) -> list[Array]:
    lengths: dict[np.dtype[np.generic], int] = {}
    for array in arrays:
        lengths[array.dtype] = lengths.get(array.dtype, 0) + array.size
    return [np.empty(length + 1, dtype) for dtype, length in lengths.items()]


def _views(arrays: Sequence[Array], buffers: Sequence[Array]) -> list[Array]:
    """Where each array lies in the buffer of its dtype."""
    places = {buffer.dtype: buffer for buffer in buffers}
    offsets = dict.fromkeys(places, 0)
    views = []
    for array in arrays:
        start = offsets[array.dtype]
        offsets[array.dtype] = start + array.size
        views.append(places[array.dtype][start : start + array.size].reshape(array.shape))
    return views

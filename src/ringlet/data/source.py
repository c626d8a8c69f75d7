"""Random access to samples: the contract of a source, and the sources made from arrays and from other sources."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import DataError

Task: TypeAlias = Literal["classification", "multilabel", "segmentation", "regression"]
TASKS: tuple[Task, ...] = get_args(Task)
Indices: TypeAlias = NDArray[np.int64]
Samples: TypeAlias = tuple[NDArray[Any], NDArray[Any]]
Weights: TypeAlias = NDArray[np.float32]


class Source(Protocol):
    """Samples by index. Reads are thread-safe and touch only what was asked for.

    ``read(indices)`` gives inputs ``(n, *input_shape)``, uint8 or float32, and targets: int64 classes ``(n,)``; for
    segmentation float32 masks ``(n, 1, H, W)`` in {0, 1} if ``num_classes`` is 1, else int64 classes ``(n, H, W)``; for
    several labels float32 ``(n, K)`` in {0, 1}; for regression float32 ``(n, K)``, or ``(n, K, H, W)`` per pixel.

    A source may also have ``weights(indices)``, how much each sample counts: float32 ``(n,)``, or None if all count
    alike (:func:`weights_of`), and ``is_random``, True where reading a sample twice gives different values.
    """

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, (C, H, W) for images."""

    @property
    def task(self) -> Task:
        """What the targets are."""

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or values; 1 for a binary segmentation."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Samples:
        """The samples at ``indices``, in that order."""


class ArraySource:
    """Images ``(N, *input_shape)`` and targets, by default int64 classes ``(N,)``, in memory or memory-mapped."""

    def __init__(
        self,
        images: NDArray[Any],
        labels: NDArray[Any],
        num_classes: int,
        task: Task = "classification",
        weights: Weights | None = None,
    ) -> None:
        if len(images) != len(labels):
            raise DataError(f"{len(images)} images but {len(labels)} labels: expected as many labels as images")
        self._images = np.asarray(images)
        self._labels = labels
        self._weights = weights
        self.task: Task = task
        self.input_shape: tuple[int, ...] = tuple(images.shape[1:])
        self.num_classes = num_classes
        self.values_dtype: np.dtype[Any] = images.dtype

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, indices: Indices) -> Samples:
        """Gather the rows; foreign byte orders and floating types become float32."""
        return as_inputs(gather(self._images, indices)), self._labels[indices]

    def weights(self, indices: Indices) -> Weights | None:
        """Those of the rows."""
        return None if self._weights is None else self._weights[indices]


class SubsetSource:
    """A view of some samples of another source."""

    def __init__(self, source: Source, indices: Indices) -> None:
        self._source = source
        self._indices = np.asarray(indices, dtype=np.int64)
        self.input_shape: tuple[int, ...] = source.input_shape
        self.task: Task = source.task
        self.num_classes = source.num_classes

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: Indices) -> Samples:
        """Read the mapped samples from the source of the view."""
        return self._source.read(self._indices[indices])

    def weights(self, indices: Indices) -> Weights | None:
        """Those of the mapped samples."""
        return weights_of(self._source, self._indices[indices])


class JoinedSource:
    """Several sources of one shape, one after the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        if not parts:
            raise DataError("no parts to join: expected at least one file of samples")
        first = parts[0]
        for part in parts:
            if part.input_shape != first.input_shape or part.task != first.task:
                raise DataError(f"parts of different shape: {part.input_shape} beside {first.input_shape}")
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        self.input_shape: tuple[int, ...] = first.input_shape
        self.task: Task = first.task
        self.num_classes = max(part.num_classes for part in parts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Indices) -> Samples:
        """Read from each part that is concerned, and put the samples back into the order asked for."""
        owners = np.searchsorted(self._ends, indices, side="right")
        used = np.unique(owners)
        if len(used) <= 1:
            owner = int(used[0]) if len(used) else 0
            return self._parts[owner].read(indices - self._start(owner))
        positions = [np.flatnonzero(owners == owner) for owner in used]
        pieces = [
            self._parts[owner].read(indices[where] - self._start(int(owner)))
            for owner, where in zip(used, positions, strict=True)
        ]
        back = np.argsort(np.concatenate(positions))
        inputs, targets = (np.concatenate([piece[side] for piece in pieces])[back] for side in (0, 1))
        return inputs, targets

    def weights(self, indices: Indices) -> Weights | None:
        """Those of the parts; samples of a part without weights count 1."""
        owners = np.searchsorted(self._ends, indices, side="right")
        found = np.ones(len(indices), np.float32)
        has_any = False
        for owner in np.unique(owners).tolist():
            where = np.flatnonzero(owners == owner)
            own = weights_of(self._parts[owner], indices[where] - self._start(owner))
            if own is not None:
                found[where], has_any = own, True
        return found if has_any else None

    def _start(self, owner: int) -> int:
        return int(self._ends[owner - 1]) if owner else 0


def weights_of(source: Source, indices: Indices) -> Weights | None:
    """How much the samples at ``indices`` count; None where the source says nothing: all alike."""
    method = getattr(source, "weights", None)
    return None if method is None else method(indices)


def is_random(source: Source) -> bool:
    """Whether a sample may change from read to read; views ask the source below them."""
    below = getattr(source, "_source", None)
    return bool(getattr(source, "is_random", False)) or (below is not None and is_random(below))


def files_of(source: Source, index: int) -> tuple[Path, ...]:
    """The files of one sample, image and mask; none if it has none of its own."""
    if isinstance(source, SubsetSource):
        return files_of(source._source, int(source._indices[index]))
    if isinstance(source, ResizedSource | CachedSource):
        return files_of(source._source, index)
    found = getattr(source, "files", None)
    return () if found is None else tuple(found(index))


def labels_of(source: Source) -> NDArray[np.int64] | None:
    """The classes of all samples of a source if they are known without reading the samples."""
    if isinstance(source, SubsetSource):
        labels = labels_of(source._source)
        return None if labels is None else labels[source._indices]
    if isinstance(source, ResizedSource | CachedSource):
        return labels_of(source._source)
    found = getattr(source, "_labels", None) if source.task == "classification" else None
    return found if isinstance(found, np.ndarray) else None


def gather(rows: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """Copy the rows at ``indices`` of an array of any strides; only these rows are touched."""
    # take() is the quickest, but it first copies the whole array when that is not contiguous.
    return rows.take(indices, axis=0) if rows.flags.c_contiguous else rows[indices]


def as_inputs(values: NDArray[Any]) -> NDArray[Any]:
    """Inputs as a source gives them: uint8 stays, everything else becomes float32."""
    return values if values.dtype == np.uint8 else values.astype(np.float32, copy=False)


def check_labels(labels: NDArray[Any], num_classes: int, path: Path | str) -> NDArray[np.int64]:
    """Labels as int64 if all are in [0, num_classes); otherwise an error naming the file and the first bad index."""
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: labels have type {labels.dtype}: expected integers")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        raise DataError(
            f"{path}: label {labels[wrong[0]]} at index {wrong[0]}: expected 0 … {num_classes - 1} "
            f"({num_classes} classes; {len(wrong)} of {len(labels)} labels are out of range)"
        )
    return labels.astype(np.int64)


# -- kept in memory ---------------------------------------------------------------------------------------------------
MAX_BYTES = 128 << 20
"""More than this is not kept: decoding again costs less than memory that others need."""


@final
class CachedSource:
    """Another source whose samples are read once each. Thread-safe: at worst a sample is read twice."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._known = np.zeros(len(source), dtype=bool)
        self._kept: Samples | None = None
        self.input_shape: tuple[int, ...] = source.input_shape
        self.task: Task = source.task
        self.num_classes = source.num_classes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, indices: Indices) -> Samples:
        """Read what is not known yet, then copy from memory."""
        missing = np.unique(indices[~self._known[indices]])
        kept = self._kept
        if len(missing) or kept is None:
            kept = self._keep(missing, self._source.read(missing))
        inputs, targets = kept
        return inputs[indices], targets[indices]

    def weights(self, indices: Indices) -> Weights | None:
        """Those of the source."""
        return weights_of(self._source, indices)

    def _keep(self, indices: Indices, samples: Samples) -> Samples:
        with self._lock:
            if self._kept is None:
                inputs, targets = (np.empty((len(self), *part.shape[1:]), part.dtype) for part in samples)
                self._kept = inputs, targets
            for kept, part in zip(self._kept, samples, strict=True):
                kept[indices] = part
            self._known[indices] = True
            return self._kept


def cached(source: Source, bytes_per_sample: int, max_bytes: int = MAX_BYTES) -> Source:
    """``source`` with a memory if all of its samples fit into ``max_bytes``."""
    return CachedSource(source) if len(source) * bytes_per_sample <= max_bytes else source


# -- resized: bilinear for images, nearest for masks ------------------------------------------------------------------
class ResizedSource:
    """Another source with its images brought to one height and width when they are read."""

    def __init__(self, source: Source, image_size: tuple[int, int]) -> None:
        if len(source.input_shape) != 3:
            raise DataError(f"cannot resize inputs of shape {source.input_shape}: expected images (C, H, W)")
        channels, height, width = source.input_shape
        self._source = source
        self._rows = bilinear_matrix(height, image_size[0])
        self._columns = bilinear_matrix(width, image_size[1])
        self._nearest = tuple(
            np.minimum((np.arange(new) + 0.5) * old / new, old - 1).astype(np.int64)
            for old, new in ((height, image_size[0]), (width, image_size[1]))
        )
        self.input_shape: tuple[int, ...] = (channels, *image_size)
        self.task: Task = source.task
        self.num_classes = source.num_classes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, indices: Indices) -> Samples:
        """Read and resize; bytes stay bytes."""
        inputs, targets = self._source.read(indices)
        resized = _resized(inputs, self._rows, self._columns)
        if targets.ndim >= 3:
            targets = targets[..., self._nearest[0][:, None], self._nearest[1]]
        return resized, targets

    def weights(self, indices: Indices) -> Weights | None:
        """Those of the source."""
        return weights_of(self._source, indices)


def resize_images(images: NDArray[Any], image_size: tuple[int, int]) -> NDArray[Any]:
    """Images ``(n, C, H, W)`` of any size brought to ``image_size`` just as a :class:`ResizedSource` does it."""
    rows, columns = (bilinear_matrix(*extents) for extents in zip(images.shape[2:], image_size, strict=True))
    return _resized(images, rows, columns)


def _resized(images: NDArray[Any], rows: NDArray[np.float32], columns: NDArray[np.float32]) -> NDArray[Any]:
    resized: NDArray[Any] = rows @ images.astype(np.float32) @ columns.T
    return np.rint(resized).astype(np.uint8) if images.dtype == np.uint8 else resized


def bilinear_matrix(old: int, new: int) -> NDArray[np.float32]:
    """The (new, old) matrix of bilinear interpolation between pixel centres along one axis."""
    position = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(position.astype(np.int64), max(old - 2, 0))
    weight = position - low
    matrix = np.zeros((new, old), dtype=np.float32)
    rows = np.arange(new)
    matrix[rows, low] += (1 - weight).astype(np.float32)
    matrix[rows, np.minimum(low + 1, old - 1)] += weight.astype(np.float32)
    return matrix

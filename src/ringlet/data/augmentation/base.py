"""What a change of images is, its random numbers, and all changes of a run in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import Component, Registry, option
from ringlet.data import hashing
from ringlet.data.source import Indices, Samples
from ringlet.errors import ConfigError, UsageError

_STREAM = 3

Images = list[NDArray[Any]]
"""The inputs ``(n, C, H, W)`` of a batch, and its masks where there are any."""
AUGMENTATIONS: Registry[type[Change]] = Registry(
    "augmentation", package="ringlet.data.augmentation", group="augmentations"
)


class Draw:
    """Random numbers of one batch: one per sample and kind, keyed by the sample's index.

    ``kind`` is any number that is used for nothing else; those below 1,000 belong to Ringlet.
    """

    def __init__(self, stream_key: int, indices: Indices) -> None:
        self._stream = stream_key
        self._indices = indices

    def chosen(self, kind: int, probability: float) -> Indices:
        """The places in the batch of the samples that are changed."""
        if probability <= 0.0:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.uniform(kind) < probability)

    def uniform(self, kind: int, *more: int) -> NDArray[np.float64]:
        """A number in [0, 1) for every sample; ``more`` numbers give further ones of the same kind."""
        return hashing.uniform(hashing.stream(self._stream, kind, *more), self._indices)

    def integers(self, kind: int, limit: int) -> Indices:
        """A whole number from 0 to ``limit - 1`` for every sample."""
        return hashing.integers(hashing.stream(self._stream, kind), self._indices, limit)

    def between(self, kind: int, low: float, high: float) -> NDArray[np.float64]:
        """A number from ``low`` up to ``high`` for every sample."""
        return low + (high - low) * self.uniform(kind)

    def of(self, indices: Indices) -> Draw:
        """The random numbers of other samples."""
        return Draw(self._stream, indices)


class Change(Component, ABC):
    """One kind of change: of images by themselves (:class:`Transform`), or of pairs (:class:`Mixture`)."""

    registry: ClassVar[Registry[Any] | None] = AUGMENTATIONS
    order: ClassVar[int] = 100
    """Changes apply by this number, the lowest first; mixtures after all others."""
    probability: float = option(0.5, "share of the images that are changed", ge=0, le=1)

    def check_shape(self, height: int, width: int) -> None:
        """Refuse images that are too small."""

    def check_channels(self, channels: int) -> None:
        """Refuse images that do not have the right channels."""


class Transform(Change):
    """A change of every image by itself."""

    @abstractmethod
    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images; those given may be changed in place."""


class Mixture(Change):
    """A change of samples by others of the data set, their partners, which went through all transforms too."""

    chance_kind: ClassVar[int]
    partner_kind: ClassVar[int]
    """Kinds of :class:`Draw`: whether a sample is changed, and by which other one."""
    blends_pixels: ClassVar[bool] = False
    """Whether a pixel of the result is a mean of two, so that classes of pixels become shares."""

    @abstractmethod
    def mix(self, samples: Samples, partners: Samples, draw: Draw) -> Samples:
        """The mixed samples; targets are masks, or numbers such as the shares of classes."""


class Pool(Protocol):
    """Where mixtures find partners."""

    @property
    def num_classes(self) -> int:
        """That of the data."""

    def partners(self, indices: Indices, uniform: NDArray[np.float64]) -> Indices:
        """Another sample for each of ``indices``, by numbers in [0, 1)."""

    def read(self, indices: Indices) -> Samples:
        """Samples as the data have them."""


@final
class Augmentation:
    """What may happen to a sample: its transforms, in their order, then its mixtures.

    ``num_classes`` is the number of outputs that shares of classes are made for, if not that of the data.
    """

    def __init__(self, changes: Iterable[Change], num_classes: int | None = None) -> None:
        found = sorted(changes, key=lambda change: change.order)
        self.transforms = tuple(change for change in found if isinstance(change, Transform))
        self.mixtures = tuple(change for change in found if isinstance(change, Mixture))
        self._num_classes = num_classes

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not images, or too small."""
        if len(input_shape) != 3:
            raise ConfigError(f"cannot flip, move or turn inputs of shape {input_shape}: expected images (C, H, W)")
        for change in (*self.transforms, *self.mixtures):
            change.check_channels(input_shape[0])
            change.check_shape(*input_shape[1:])

    def gives_shares(self, task: str, num_classes: int) -> bool:
        """Whether targets become shares of classes, which a loss has to take."""
        if task == "segmentation":
            return num_classes > 1 and any(mixture.blends_pixels for mixture in self.mixtures)
        return task == "classification" and bool(self.mixtures)

    def apply(self, samples: Samples, indices: Indices, seed: int, epoch: int, pool: Pool | None = None) -> Samples:
        """The changed samples; ``samples`` is ``(inputs, targets)`` as read, and may be changed in place."""
        draw = Draw(hashing.stream(_STREAM, seed, epoch), indices)
        inputs, targets = self._transformed(samples, draw)
        if not self.mixtures:
            return inputs, targets
        if pool is None:
            raise UsageError("mixtures take partners from the data: give a pool of samples, as a BatchLoader does")
        inputs, targets = inputs, self._shared(targets, pool)
        for mixture in self.mixtures:
            chosen = draw.chosen(mixture.chance_kind, mixture.probability)
            if not len(chosen):
                continue
            own = draw.of(indices[chosen])
            partners = pool.partners(indices[chosen], own.uniform(mixture.partner_kind))
            others = self._transformed(pool.read(partners), draw.of(partners))
            mixed = mixture.mix((inputs[chosen], targets[chosen]), (others[0], self._shared(others[1], pool)), own)
            inputs[chosen], targets[chosen] = mixed
        return inputs, targets

    def _transformed(self, samples: Samples, draw: Draw) -> Samples:
        inputs, targets = samples
        images = [np.require(values, requirements=["W"]) for values in (inputs, *_masks(targets, inputs))]
        for transform in self.transforms:
            images = transform.apply(images, draw)
        return images[0], images[1].reshape(targets.shape) if len(images) == 2 else targets

    def _shared(self, targets: NDArray[Any], pool: Pool) -> NDArray[Any]:
        """Classes as shares, a one and zeros, where mixtures make means of them; other targets as they are."""
        task = "segmentation" if targets.ndim >= 3 else "classification"
        if targets.dtype.kind == "f" or not self.gives_shares(task, pool.num_classes):
            return np.require(targets, requirements=["W"])
        shape = (len(targets), self._num_classes or pool.num_classes, *targets.shape[1:])
        shares = np.zeros(shape, np.float32)
        np.put_along_axis(shares, targets[:, None], 1, axis=1)
        return shares


def _masks(targets: NDArray[Any], inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The targets as images ``(n, 1, H, W)`` if they are masks or classes of pixels; nothing otherwise."""
    if inputs.ndim != 4 or targets.ndim < 3:
        return []
    return [targets[:, None] if targets.ndim == 3 else targets]


def restored(values: NDArray[np.float32], like: NDArray[Any]) -> NDArray[Any]:
    """Computed values in the type of the image: bytes are rounded and stay within theirs."""
    if like.dtype == np.uint8:
        return np.rint(np.clip(values, 0, 255)).astype(np.uint8)
    return (np.rint(values) if like.dtype.kind in "iu" else values).astype(like.dtype)

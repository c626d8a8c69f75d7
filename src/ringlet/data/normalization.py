"""From stored values to what a network sees: ``(value * scale - mean) / std`` per channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.errors import ConfigError

BYTE_SCALE = 1.0 / 255.0


@dataclass(frozen=True)
class Normalization:
    """A scale for all values, then mean and standard deviation per channel (or one value for all channels)."""

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse constants that would divide by zero or spread NaN."""
        values = (self.scale, *self.mean, *self.std)
        if not self.mean or len(self.mean) != len(self.std) or not all(np.isfinite(values)) or min(self.std) <= 0.0:
            raise ConfigError(
                f"cannot normalise with scale {self.scale}, mean {self.mean}, std {self.std}: "
                "expected finite numbers, as many means as stds, and every std above zero"
            )

    def apply(self, values: NDArray[Any], dtype: str = "float32") -> NDArray[Any]:
        """A new normalised array of ``dtype``; ``values`` has its channels on axis 1."""
        result = values.astype(dtype, order="C")
        factor, offset = (self._per_channel(constants, result) for constants in self.factors(dtype))
        if self.scale != 1.0 or any(std != 1.0 for std in self.std):
            result *= factor
        if any(self.mean):
            result += offset
        return result

    def factors(self, dtype: DTypeLike = "float32") -> tuple[NDArray[Any], NDArray[Any]]:
        """The same as ``value * factor + offset``: two arrays with one element per channel, or one for all."""
        factor = np.array([self.scale / std for std in self.std], dtype)
        return factor, np.array([-mean / std for mean, std in zip(self.mean, self.std, strict=True)], dtype)

    def _per_channel(self, values: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
        if len(values) == 1:
            return values.reshape(())
        if like.ndim < 2 or like.shape[1] != len(values):
            raise ConfigError(f"normalisation has {len(values)} channels but the data has shape {like.shape[1:]}")
        return values.reshape(1, -1, *[1] * (like.ndim - 2))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a model file."""
        return {"scale": self.scale, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalization:
        """The inverse of :meth:`to_dict`."""
        try:
            mean, std = (tuple(float(value) for value in values[key]) for key in ("mean", "std"))
            return cls(float(values["scale"]), mean, std)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"not a normalisation: {dict(values)!r} ({error})") from error


BYTES = Normalization(BYTE_SCALE)
DIGITS = Normalization(1.0 / 16.0)
MNIST = Normalization(BYTE_SCALE, (0.1307,), (0.3081,))
FASHION_MNIST = Normalization(BYTE_SCALE, (0.2860,), (0.3530,))
CIFAR10 = Normalization(BYTE_SCALE, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = Normalization(BYTE_SCALE, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
SYMMETRIC = Normalization(BYTE_SCALE, (0.5,), (0.5,))
IMAGENET = Normalization(BYTE_SCALE, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

"""From a picture as it comes to what a network was trained on: size, channels, range of values.

A network's *stored values* are those of its training data before normalisation: bytes 0 … 255 for almost all data, 0 …
16 for the built-in digits, any numbers for arrays of floats. Normalisation itself is part of every exported graph. What
happens here is the rest, and it is done by the code that training uses: files are decoded and resized by
:mod:`ringlet.data.images` (Pillow, bilinear with antialiasing), arrays by :mod:`ringlet.data.source`. No graph operator
of any target gives the same bits, so the resize stays outside the graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.images import decode_image
from ringlet.data.normalization import Normalization
from ringlet.data.source import resize_images
from ringlet.errors import ConfigError, DataError

Size = tuple[int, int]
COLOURS = {1: "grey", 3: "rgb", 4: "rgba"}
_BYTE_WHITE = 255


@dataclass(frozen=True)
class Preprocessing:
    """What a network takes: ``input_shape`` (C, H, W) or (F,), and the normalisation of its training data."""

    input_shape: tuple[int, ...]
    normalization: Normalization

    def __post_init__(self) -> None:
        """Refuse constants that do not fit the channels."""
        num_constants = len(self.normalization.mean)
        if num_constants not in (1, self.input_shape[0]) or self.normalization.scale <= 0.0:
            raise ConfigError(
                f"normalisation has scale {self.normalization.scale} and {num_constants} channels: expected a scale "
                f"above zero and 1 or {self.input_shape[0]} channels"
            )

    @property
    def is_image(self) -> bool:
        """Whether inputs are images, not plain features."""
        return len(self.input_shape) == 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the stored values: bytes have a scale, arrays of floats have none."""
        return np.dtype(np.uint8 if self.normalization.scale != 1.0 else np.float32)

    @property
    def white(self) -> float:
        """The stored value of white: the one that the scale makes 1."""
        return 1.0 / self.normalization.scale

    @property
    def graph_shape(self) -> tuple[int, ...]:
        """Shape of one input of a graph: (H, W, C), or (F,)."""
        return (*self.input_shape[1:], self.input_shape[0]) if self.is_image else self.input_shape

    @property
    def has_known_colours(self) -> bool:
        """Whether pictures can become inputs: grey, RGB or RGBA."""
        return self.is_image and self.input_shape[0] in COLOURS

    def decode(self, content: bytes, what: str) -> tuple[NDArray[Any], Size]:
        """Stored values (H, W, C) of an encoded picture (PNG, JPEG, …) and the height and width that it had.

        Anything wrong with it is a DataError that begins with ``what``. Memory is bounded by the size of ``content``:
        see :mod:`ringlet.data.images`.
        """
        if not self.has_known_colours:
            raise DataError(f"{what}: the network takes inputs of shape {self.input_shape}, which no picture has")
        if not content:
            raise DataError(f"{what}: has no bytes: expected an image")
        values, size = decode_image(content, self.input_shape, what)
        return self._stored(values), size

    def _stored(self, values: NDArray[np.uint8]) -> NDArray[Any]:
        """Bytes 0 … 255 in the range of the training data."""
        if self.dtype == np.float32:
            return np.multiply(values, np.float32(self.white / _BYTE_WHITE), dtype=np.float32)
        if round(self.white) == _BYTE_WHITE:
            return values
        levels = np.rint(np.arange(_BYTE_WHITE + 1) * (self.white / _BYTE_WHITE)).astype(np.uint8)
        return np.asarray(levels[values])

    def fit(self, values: NDArray[Any], what: str) -> tuple[NDArray[Any], Size]:
        """Stored values of the network's size from an array (H, W, C) of stored values, and its height and width.

        Images of another size are resized as training resizes arrays.
        """
        checked = self._checked(values, what)
        if not self.is_image:
            return checked, (1, 1)
        size = (values.shape[0], values.shape[1])
        if size != self.input_shape[1:]:
            height, width = self.input_shape[1:]
            checked = np.moveaxis(resize_images(np.moveaxis(checked, 2, 0)[None], (height, width))[0], 0, 2)
        return np.ascontiguousarray(checked), size

    def channels_last(self, values: NDArray[Any], what: str) -> NDArray[Any]:
        """An image whose layout is not known as (H, W, C): the last axis counts channels, unless only the first can."""
        if not self.is_image:
            if values.shape != self.input_shape:
                raise DataError(f"{what}: shape {values.shape}: expected {self.input_shape}")
            return values
        channels = self.input_shape[0]
        if values.ndim == 2 and channels == 1:
            return values[:, :, None]
        if values.ndim == 3 and values.shape[2] == channels and values.shape != self.input_shape:
            return values
        if values.ndim == 3 and values.shape[0] == channels:
            return np.moveaxis(values, 0, 2)
        wanted = f"(height, width, {channels}) or ({channels}, height, width)"
        grey = " or (height, width)" if channels == 1 else ""
        raise DataError(f"{what}: shape {values.shape}: expected {wanted}{grey}")

    def _checked(self, values: NDArray[Any], what: str) -> NDArray[Any]:
        """An array of the right type with values in range."""
        if values.dtype.kind not in "uifb" or values.size == 0:
            raise DataError(f"{what}: an array of shape {values.shape} and type {values.dtype}: expected numbers")
        if self.dtype == np.float32:
            plain = values.astype(np.float32)
            if not np.isfinite(plain).all():
                raise DataError(f"{what}: has values that are not finite")
            return plain
        limit = min(round(self.white), _BYTE_WHITE)
        if not (values.min() >= 0 and values.max() <= limit):
            raise DataError(
                f"{what}: values from {values.min():g} to {values.max():g}: expected 0 to {limit}, as in the training "
                "data (the model normalises them itself)"
            )
        as_bytes = values.astype(np.uint8)
        if values.dtype.kind == "f" and not np.array_equal(as_bytes, values):
            raise DataError(
                f"{what}: values with fractions: expected whole numbers from 0 to {limit}, as in the training data "
                "(the model normalises them itself)"
            )
        return as_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for an artifact: all that another program needs to do the same."""
        plain: dict[str, Any] = {
            "input_shape": list(self.input_shape),
            "normalization": self.normalization.to_dict(),
            "values": str(self.dtype),
            "white": self.white,
        }
        if not self.is_image:
            return plain
        channels, height, width = self.input_shape
        image = {"layout": "NHWC", "height": height, "width": width, "resize": "bilinear"}
        return plain | image | {"channels": COLOURS.get(channels, str(channels))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Preprocessing:
        """The inverse of :meth:`to_dict`; what is derived there is not read."""
        return cls(tuple(data["input_shape"]), Normalization.from_dict(data["normalization"]))

"""Built-in shapes: procedural images for segmentation, with circles, rectangles and triangles on textured ground.

Image ``i`` is a pure function of (seed, i), at any size. Its mask covers one to three objects, which differ from the
ground in colour but share its noise and shading, so that a threshold alone does not find them. The kinds of objects may
be told apart: then every pixel has a class, and where objects overlap the last one counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing
from ringlet.data.source import Indices, Samples, Task
from ringlet.errors import DataError

_STREAM, _NOISE_STREAM = 20, 21
_NUM_DRAWS = 64
_FIRST_OBJECT_DRAW = 16
_DRAWS_PER_OBJECT = 14
KINDS = ("circle", "rectangle", "triangle")
CLASS_NAMES = {1: ("object",), 2: ("background", "object"), 1 + len(KINDS): ("background", *KINDS)}
"""What the classes are called, by their number."""

Plane = NDArray[np.float32]


class ShapesSource:
    """``num_samples`` images of ``input_shape`` (C, H, W); another ``first`` gives other images of the same kind."""

    task: Task = "segmentation"

    def __init__(
        self, input_shape: tuple[int, ...], num_samples: int, *, num_classes: int = 1, seed: int = 0, first: int = 0
    ) -> None:
        if num_classes not in CLASS_NAMES:
            raise DataError(
                f"shapes of {num_classes} classes do not exist: expected 1, 2 or 4 (background, {', '.join(KINDS)})"
            )
        if len(input_shape) != 3 or not 1 <= input_shape[0] <= 4 or min(input_shape[1:]) < 8 or num_samples < 1:
            raise DataError(
                f"cannot make {num_samples} shapes of {input_shape}: expected (C, H, W) with 1 to 4 channels and at "
                "least 8x8 pixels, and at least one sample"
            )
        self.input_shape: tuple[int, ...] = tuple(input_shape)
        self.num_classes = num_classes
        self._num_samples, self._first, self._seed = num_samples, first, seed
        _, height, width = input_shape
        self._y = ((np.arange(height, dtype=np.float32) + 0.5) / height)[:, None]
        self._x = ((np.arange(width, dtype=np.float32) + 0.5) / width)[None, :]
        words = hashing.words(hashing.stream(_NOISE_STREAM, seed), np.arange(-(-2 * height * width // 8)))
        self._noise = words.view(np.uint8).astype(np.float32) * np.float32(0.12 / 255)

    def __len__(self) -> int:
        return self._num_samples

    def read(self, indices: Indices) -> Samples:
        """Draw the images at ``indices``."""
        channels, height, width = self.input_shape
        inputs = np.empty((len(indices), channels, height, width), dtype=np.uint8)
        targets = np.zeros((len(indices), 1, height, width), dtype=np.float32 if self.num_classes == 1 else np.int64)
        for row, index in enumerate(indices.tolist()):
            draws = hashing.uniform(hashing.stream(_STREAM, self._seed, self._first + index), np.arange(_NUM_DRAWS))
            self._draw(inputs[row], targets[row, 0], draws.tolist())
        return inputs, targets if self.num_classes == 1 else targets[:, 0]

    def _draw(self, image: NDArray[np.uint8], mask: NDArray[Any], draws: list[float]) -> None:
        texture = self._texture(draws)
        ground = draws[8:12]
        planes = [texture + np.float32(0.1 + 0.35 * shade) for shade in ground]
        for number in range(1 + int(3 * draws[0])):
            start = _FIRST_OBJECT_DRAW + number * _DRAWS_PER_OBJECT
            own = draws[start : start + _DRAWS_PER_OBJECT]
            inside = self._object(own)
            mask[inside] = 1 + _kind(own) if self.num_classes > 2 else 1
            for channel in range(len(image)):
                planes[channel][inside] += np.float32(0.25 + 0.25 * own[8 + channel])
        for channel, plane in enumerate(planes[: len(image)]):
            image[channel] = np.clip(plane, 0, 1) * 255

    def _texture(self, draws: list[float]) -> Plane:
        """Two waves, a gradient and noise, within about 0 … 0.3."""
        waves = np.sin(self._x * (4 + 30 * draws[1]) + 6.28 * draws[2]) + np.sin(
            self._y * (4 + 30 * draws[3]) + 6.28 * draws[4]
        )
        gradient = (draws[5] - 0.5) * self._x + (draws[6] - 0.5) * self._y
        offset = int(draws[7] * waves.size)
        noise = self._noise[offset : offset + waves.size].reshape(waves.shape)
        return np.asarray(0.1 + 0.04 * waves + 0.08 * gradient + noise, dtype=np.float32)

    def _object(self, own: list[float]) -> NDArray[np.bool_]:
        """Where one circle, rectangle or triangle is; coordinates run from 0 to 1 over the image."""
        centre_x, centre_y = 0.2 + 0.6 * own[1], 0.2 + 0.6 * own[2]
        radius = 0.1 + 0.13 * own[3]
        cosine, sine = np.cos(6.28 * own[4]), np.sin(6.28 * own[4])
        right, down = self._x - np.float32(centre_x), self._y - np.float32(centre_y)
        along, across = right * cosine + down * sine, down * cosine - right * sine
        kind = KINDS[_kind(own)]
        if kind == "circle":
            return np.asarray(right**2 + down**2 <= radius**2)
        if kind == "rectangle":
            return np.asarray((np.abs(along) <= radius) & (np.abs(across) <= radius * (0.4 + 0.6 * own[5])))
        return np.asarray((across <= radius * 0.6) & (across >= 1.8 * np.abs(along) - 1.2 * radius))


def _kind(own: list[float]) -> int:
    """Which of :data:`KINDS` an object is, by its own draws."""
    return int(len(KINDS) * own[0])

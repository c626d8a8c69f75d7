"""Built-in data sets: handwritten digits that come with the package, synthetic classes, and shapes with masks.

*digits*: 1,797 handwritten digits of 8x8 pixels, values 0 … 16. From "Optical Recognition of Handwritten Digits" by
E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0; see ``builtin/ATTRIBUTION.md``. 1,437 of them
train and 360 test. Which is which is fixed: ``partition.split_indices(1797, SPLIT_SEED, 360)``, a pure function that no
option changes. Neighbours in the file are often by one writer: cutting it in two would test on writers other than those
that trained.

*synthetic*: classification data of any shape, for trials of any network without any file. Sample ``i`` is a pure
function of (seed, i): its class is random, its values are a smooth pattern of that class plus noise, as bytes. The
patterns differ enough that a network learns them, and the noise is drawn from a pool, so making a batch costs about as
much as reading one.

*shapes*: procedural images for segmentation, with circles, rectangles and triangles on textured ground. Image ``i`` is
a pure function of (seed, i), at any size. Its mask covers one to three objects, which differ from the ground in colour
but share its noise and shading, so that a threshold alone does not find them. The kinds of objects may be told apart:
then every pixel has a class, and where objects overlap the last one counts.
"""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data import hashing, partition
from ringlet.data.source import ArraySource, Indices, Samples, Task
from ringlet.errors import DataError

# -- digits -----------------------------------------------------------------------------------------------------------
NUM_TEST = 360
SPLIT_SEED = 1998
"""The year of the data set's publication; chosen once, never tuned."""


def load_digits() -> tuple[ArraySource, ArraySource]:
    """Train and test source, each in the order of the file."""
    with (
        resources.files("ringlet.data").joinpath("builtin/digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        images, labels = arrays["images"][:, None], arrays["labels"].astype(np.int64)
    train, test = partition.split_indices(len(labels), SPLIT_SEED, NUM_TEST)
    return ArraySource(images[train], labels[train], 10), ArraySource(images[test], labels[test], 10)


# -- synthetic --------------------------------------------------------------------------------------------------------
_LABEL_STREAM, _PATTERN_STREAM, _NOISE_STREAM, _OFFSET_STREAM = 10, 11, 12, 13
_NOISE_AMPLITUDE = 64
_MAX_PATTERN_BYTES = 64 << 20
_NUM_WINDOWS = 1 << 17


class SyntheticSource:
    """``num_samples`` images of ``input_shape``; sources of one seed but another ``first`` share the patterns."""

    task: Task = "classification"

    def __init__(
        self, input_shape: tuple[int, ...], num_classes: int, num_samples: int, *, seed: int = 0, first: int = 0
    ) -> None:
        if not input_shape or min(input_shape) < 1 or num_classes < 1 or num_samples < 1:
            raise DataError(
                f"synthetic data of shape {input_shape}, {num_classes} classes, {num_samples} samples: "
                "expected positive numbers"
            )
        self.input_shape: tuple[int, ...] = tuple(input_shape)
        self.num_classes = num_classes
        self._num_samples, self._first = num_samples, first
        self._seed = seed
        self._num_values = math.prod(input_shape)
        self._patterns = _patterns(self._num_values, num_classes, seed)
        self._noise = _noise(self._num_values, seed)

    def __len__(self) -> int:
        return self._num_samples

    def read(self, indices: Indices) -> Samples:
        """Make the samples at ``indices``."""
        keys = indices + self._first
        labels = hashing.integers(hashing.stream(_LABEL_STREAM, self._seed), keys, self.num_classes)
        offsets = hashing.integers(hashing.stream(_OFFSET_STREAM, self._seed), keys, _NUM_WINDOWS).tolist()
        values = self._patterns.take(labels % len(self._patterns), axis=0)
        for row, offset in zip(values, offsets, strict=True):
            row += self._noise[offset : offset + self._num_values]
        return values.reshape(len(keys), *self.input_shape), labels


def _patterns(num_values: int, num_classes: int, seed: int) -> NDArray[np.uint8]:
    """One row of smooth bytes per class; below 64 MiB in total, after which classes share a pattern."""
    rows = max(1, min(num_classes, _MAX_PATTERN_BYTES // num_values))
    num_knots = min(num_values, 48)
    knots = hashing.uniform(hashing.stream(_PATTERN_STREAM, seed), np.arange(rows * num_knots)).reshape(rows, num_knots)
    positions = np.linspace(0, num_knots - 1, num_values)
    result = np.empty((rows, num_values), dtype=np.uint8)
    for row in range(rows):
        result[row] = np.interp(positions, np.arange(num_knots), knots[row]) * (255 - _NOISE_AMPLITUDE)
    return result


def _noise(num_values: int, seed: int) -> NDArray[np.uint8]:
    """A pool of bytes below the noise amplitude, of which each sample takes a window."""
    num_words = -(-(num_values + _NUM_WINDOWS) // 8)
    bits = hashing.words(hashing.stream(_NOISE_STREAM, seed), np.arange(num_words, dtype=np.uint64))
    return bits.view(np.uint8) % np.uint8(_NOISE_AMPLITUDE)


# -- shapes -----------------------------------------------------------------------------------------------------------
_SHAPE_STREAM, _SHAPE_NOISE_STREAM = 20, 21
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
        words = hashing.words(hashing.stream(_SHAPE_NOISE_STREAM, seed), np.arange(-(-2 * height * width // 8)))
        self._noise = words.view(np.uint8).astype(np.float32) * np.float32(0.12 / 255)

    def __len__(self) -> int:
        return self._num_samples

    def read(self, indices: Indices) -> Samples:
        """Draw the images at ``indices``."""
        channels, height, width = self.input_shape
        inputs = np.empty((len(indices), channels, height, width), dtype=np.uint8)
        targets = np.zeros((len(indices), 1, height, width), dtype=np.float32 if self.num_classes == 1 else np.int64)
        for row, index in enumerate(indices.tolist()):
            draws = hashing.uniform(
                hashing.stream(_SHAPE_STREAM, self._seed, self._first + index), np.arange(_NUM_DRAWS)
            )
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

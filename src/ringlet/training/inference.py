"""From images as they are stored to a network's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringlet.data import Normalization
from ringlet.engines.contract import Replica
from ringlet.errors import DataError


def predict_images(replica: Replica, normalization: Normalization, images: ArrayLike) -> NDArray[Any]:
    """Outputs ``(n, *output_shape)`` for raw images ``(n, C, H, W)``; a single image also does."""
    batch = as_batch(images, replica.spec.input_shape)
    if not len(batch):
        return np.empty((0, *replica.spec.output_shape), replica.dtype)
    return replica.predict(normalization.apply(batch, str(replica.dtype)))


def as_batch(images: ArrayLike, input_shape: Sequence[int]) -> NDArray[Any]:
    """``images`` as ``(n, *input_shape)``; anything that does not fit is an error, never reshaped by guess."""
    array, shape = np.asarray(images), tuple(input_shape)
    if array.dtype.kind not in "uif" and array.dtype != bool:
        raise DataError(f"images have type {array.dtype}: expected numbers")
    plain = shape[1:] if len(shape) == 3 and shape[0] == 1 else None
    if array.shape == shape or array.shape == plain:
        return array.reshape(1, *shape)
    if array.ndim > 1 and array.shape[1:] in (shape, plain):
        return array.reshape(len(array), *shape)
    raise DataError(f"images have shape {array.shape}: expected (n, {', '.join(map(str, shape))}), channels first")


def most_likely(outputs: NDArray[Any], labels: Sequence[str]) -> list[str]:
    """The label of the largest output of each row; without labels the class number."""
    if outputs.ndim != 2:
        raise DataError(f"outputs have shape {outputs.shape}: only a classifier gives labels")
    classes = outputs.argmax(axis=1).tolist()
    return [labels[index] if index < len(labels) else str(index) for index in classes]

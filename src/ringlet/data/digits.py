"""The built-in digits: 1,797 handwritten digits of 8x8 pixels, values 0 … 16, shipped with the package.

From "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
CC BY 4.0; see ``builtin/ATTRIBUTION.md``. The first 1,437 train, the last 360 test.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

from ringlet.data.source import ArraySource

NUM_TRAIN = 1437


def load() -> tuple[ArraySource, ArraySource]:
    """Train and test source."""
    with (
        resources.files("ringlet.data").joinpath("builtin/digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        images, labels = arrays["images"][:, None], arrays["labels"].astype(np.int64)
    return (
        ArraySource(images[:NUM_TRAIN], labels[:NUM_TRAIN], 10),
        ArraySource(images[NUM_TRAIN:], labels[NUM_TRAIN:], 10),
    )

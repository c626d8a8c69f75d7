"""The built-in digits: 1,797 handwritten digits of 8x8 pixels, values 0 … 16, shipped with the package.

From "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
CC BY 4.0; see ``builtin/ATTRIBUTION.md``.

1,437 of them train and 360 test. Which is which is fixed: ``partition.split_indices(1797, SPLIT_SEED, 360)``, a pure
function that no option changes. Neighbours in the file are often by one writer: cutting it in two would test on writers
other than those that trained.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

from ringlet.data import partition
from ringlet.data.source import ArraySource

NUM_TEST = 360
SPLIT_SEED = 1998
"""The year of the data set's publication; chosen once, never tuned."""


def load() -> tuple[ArraySource, ArraySource]:
    """Train and test source, each in the order of the file."""
    with (
        resources.files("ringlet.data").joinpath("builtin/digits.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        images, labels = arrays["images"][:, None], arrays["labels"].astype(np.int64)
    train, test = partition.split_indices(len(labels), SPLIT_SEED, NUM_TEST)
    return ArraySource(images[train], labels[train], 10), ArraySource(images[test], labels[test], 10)

"""Stage 1: data. Takes files, folders or built-in generators; gives batches of normalised arrays.

The way: a *source* reads samples by index -> *partition* says which rank reads which sample when -> the *loader* makes
batches ahead in one thread, with normalisation and (training only) augmentation applied on the way.
"""

from __future__ import annotations

from ringlet.data.augmentation import Augmentation
from ringlet.data.loader import Batch, BatchLoader, Piece
from ringlet.data.normalization import Normalization
from ringlet.data.registry import dataset_names, load_dataset
from ringlet.data.requests import Dataset
from ringlet.data.source import Source

__all__ = [
    "Augmentation",
    "Batch",
    "BatchLoader",
    "Dataset",
    "Normalization",
    "Piece",
    "Source",
    "dataset_names",
    "load_dataset",
]

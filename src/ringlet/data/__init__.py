"""Stage 1: data. Takes files, folders or built-in generators; gives batches of normalised arrays.

The way: a *source* reads samples by index -> *partition* says which rank reads which sample when -> the *loader* makes
batches ahead in one thread, with normalisation and (training only) augmentation applied on the way.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.data.augmentation import Augmentation
    from ringlet.data.given import as_dataset
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
    "as_dataset",
    "dataset_names",
    "load_dataset",
]

_HOMES = {
    "Augmentation": "augmentation",
    "as_dataset": "given",
    **dict.fromkeys(("Batch", "BatchLoader", "Piece"), "loader"),
    "Dataset": "requests",
    "Normalization": "normalization",
    "Source": "source",
    **dict.fromkeys(("dataset_names", "load_dataset"), "registry"),
}


def __getattr__(name: str) -> Any:
    """Load what is first used: predictions need pictures, not formats and their options."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.data' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.data.{_HOMES[name]}"), name)

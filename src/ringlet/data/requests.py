"""What is asked of a loader and what it gives back, before validation split and size limits are applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ringlet.data.cache import dataset_directory
from ringlet.data.normalization import BYTES, Normalization
from ringlet.data.source import Source
from ringlet.errors import DataError, UsageError


@dataclass(frozen=True)
class Request:
    """The arguments of :func:`ringlet.data.load_dataset` that concern the files."""

    name: str
    path: Path | None = None
    train_path: Path | None = None
    test_path: Path | None = None
    input_shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    num_samples: int | None = None
    seed: int = 0
    image_size: tuple[int, int] | None = None

    def folders(self, *, cached: bool = False) -> tuple[Path, Path]:
        """Where training and where test data are sought. ``cached``: without any path, look in the cache."""
        train = self.train_path or self.path or self.test_path
        if train is not None:
            return train, self.test_path or self.path or train
        if not cached:
            raise UsageError(f"data set '{self.name}' needs a path: give '{self.name}:PATH' or --dataset-path")
        fetched = dataset_directory(self.name)
        if not fetched.is_dir():
            raise DataError(
                f"data set '{self.name}' is not in the cache ({fetched}): run 'ringlet datasets fetch {self.name}', "
                "or give the folder that has its files: --dataset-path FOLDER"
            )
        return fetched, fetched

    def missing(self, folder: Path, expected: str) -> DataError:
        """The error for a folder without training files."""
        return DataError(f"no training data of '{self.name}' in {folder}: expected {expected}")


@dataclass(frozen=True)
class Parts:
    """What a loader found. ``complete``: the loader itself has honoured ``num_samples``."""

    train: Source
    test: Source | None = None
    validation: Source | None = None
    class_names: tuple[str, ...] = ()
    normalization: Normalization = BYTES
    complete: bool = False


Loader: TypeAlias = Callable[[Request], Parts]

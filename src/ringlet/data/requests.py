"""What is asked of a loader (:class:`Request`), what it gives (:class:`Parts`), and the data set made of that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ringlet.data.broken import Broken
from ringlet.data.cache import dataset_directory, located
from ringlet.data.normalization import BYTES, Normalization
from ringlet.data.source import Source, Task, weights_of
from ringlet.data.table_schema import Schema
from ringlet.data.values import Channels
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
    table: Schema | None = None
    """That of a model which the rows of a table are meant for."""
    skip_broken: bool = False
    task: Task | None = None
    """What the targets are; None: what they look like."""

    def __post_init__(self) -> None:
        """Addresses of object stores become paths in the cache."""
        for name in ("path", "train_path", "test_path"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, located(given))

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
    """What a loader found. ``complete``: the loader itself has honoured ``num_samples``; ``remarks``: what the user
    should know before training."""

    train: Source
    test: Source | None = None
    validation: Source | None = None
    class_names: tuple[str, ...] = ()
    normalization: Normalization = BYTES
    complete: bool = False
    remarks: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    """Files of samples that were left out."""
    fit: Callable[[Source], Normalization] | None = None
    """Makes the normalisation of the samples that are trained on, once it is known which these are."""
    channels: Channels = "first"
    table: Schema | None = None


Loader: TypeAlias = Callable[[Request], Parts]


# -- folders: train, val and test beneath one path, or paths of their own ---------------------------------------------
_TRAIN = ("train", "training")
_VALIDATION = ("val", "valid", "validation")
_TEST = ("test", "testing")

PART_NAMES = {"train": _TRAIN, "validation": _VALIDATION, "test": _TEST}
"""What the folder of each part may be called."""
WHAT_IS_INSIDE = {
    "folder": "a folder of images for each class, or with images and masks",
    "masks": "folders of images and of masks",
    "imagenet": "npz files",
}


@dataclass(frozen=True)
class SplitFolders:
    """The folder of each part; None where there is none: validation data are not test data."""

    train: Path
    validation: Path | None
    test: Path | None


def split_folders(request: Request) -> SplitFolders:
    """Resolve the paths of a request to folders; without subfolders the path itself is the training part."""
    base, test_base = request.folders()
    for folder in {base, test_base}:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder: expected one with {WHAT_IS_INSIDE.get(request.name, 'data')}")
    train = subfolder(base, _TRAIN)
    validation = subfolder(base, _VALIDATION) if train else None
    test: Path | None
    if request.test_path is not None:
        test = subfolder(test_base, _TEST) or subfolder(test_base, _VALIDATION) or test_base
    else:
        test = subfolder(base, _TEST) if train else None
    return SplitFolders(train or base, validation, test)


def subfolder(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first folder in ``folder`` that has one of the names."""
    return next((folder / name for name in names if (folder / name).is_dir()), None)


# -- the data set of a run --------------------------------------------------------------------------------------------
_FINGERPRINT_SAMPLES = 64


@dataclass(frozen=True)
class Dataset:
    """Everything a run knows about its data. ``validation`` and ``test`` are None when there is nothing for them.

    ``remarks`` is what the user should know before training, such as pictures of unequal sizes.
    """

    name: str
    train: Source
    validation: Source | None = None
    test: Source | None = None
    class_names: tuple[str, ...] = ()
    normalization: Normalization = field(default_factory=Normalization)
    remarks: tuple[str, ...] = ()
    is_stratified: bool = False
    """Whether the validation part was held out of the training part class by class."""
    channels: Channels = "first"
    """Where arrays that a program has given have their channels; sources always give them first."""
    table: Schema | None = None
    """How rows of a table become inputs; None if the data are no table."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, (C, H, W) for images."""
        return self.train.input_shape

    @property
    def task(self) -> Task:
        """What the targets are."""
        return self.train.task

    @property
    def num_classes(self) -> int:
        """Number of classes, labels or values; 1 for a binary segmentation."""
        return self.train.num_classes

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """What a network must give for one sample: ``(K,)``, or ``(K, H, W)`` where every pixel has a target."""
        if self.task == "segmentation":
            return (self.num_classes, *self.input_shape[1:])
        if self.task == "regression":
            return tuple(self.train.read(np.zeros(1, np.int64))[1].shape[1:])
        return (self.num_classes,)

    @property
    def is_dense(self) -> bool:
        """Whether every pixel has a target."""
        return len(self.output_shape) == 3

    def fingerprint(self) -> str:
        """SHA-256 over name, sizes, shapes and up to 64 evenly spaced samples of each part.

        Ranks compare it before the first step, a resumed run with its checkpoint. It is a check against confusion, not
        against an attacker: most samples are not read.
        """
        digest = hashlib.sha256()
        for part, source in (("train", self.train), ("validation", self.validation), ("test", self.test)):
            if source is None:
                continue
            about = [self.name, part, len(source), list(source.input_shape), source.task, source.num_classes]
            digest.update(json.dumps(about).encode())
            picks = np.unique(np.linspace(0, len(source) - 1, _FINGERPRINT_SAMPLES).astype(np.int64))
            for index in picks:
                weights = weights_of(source, np.array([index]))
                for values in (*source.read(np.array([index])), *(() if weights is None else (weights,))):
                    digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

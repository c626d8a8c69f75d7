"""A data set: sources for training, validation and test, and how their values are normalised."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np

from ringlet.data.normalization import Normalization
from ringlet.data.source import Source, Task

_FINGERPRINT_SAMPLES = 64


@dataclass(frozen=True)
class Dataset:
    """Everything a run knows about its data. ``validation`` and ``test`` are None when there is nothing for them."""

    name: str
    train: Source
    validation: Source | None = None
    test: Source | None = None
    class_names: tuple[str, ...] = ()
    normalization: Normalization = field(default_factory=Normalization)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, (C, H, W) for images."""
        return self.train.input_shape

    @property
    def task(self) -> Task:
        """Classification or segmentation."""
        return self.train.task

    @property
    def num_classes(self) -> int:
        """Number of classes; 1 for a binary segmentation."""
        return self.train.num_classes

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
                for values in source.read(np.array([index])):
                    digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

"""Ringlet's own model files, by the native engine."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ringlet.inference.artifact import Outputs
from ringlet.inference.description import describe
from ringlet.training.loaded_model import LoadedModel, load_model


@final
class NativeRuntime:
    """A replica; it computes for one caller at a time, on ``threads`` threads."""

    def __init__(self, path: Path, *, threads: int, batch_size: int, kernels: str | None = None) -> None:
        self._model: LoadedModel = load_model(path, batch_size=batch_size, threads=threads, kernels=kernels)
        model = self._model
        about = model.spec, model.normalization, model.labels
        self.description = describe(*about, dataset=model.dataset_name, table=model.table, task=model.task)
        self._threads, self._lock = threads, Lock()
        self._libraries = ThreadpoolController()  # to look for BLAS in every call would take longer than small networks

    def run(self, values: NDArray[Any]) -> Outputs:
        """Normalise and compute."""
        inputs = np.moveaxis(values, -1, 1) if values.ndim == 4 else values
        with self._lock, self._libraries.limit(limits=self._threads, user_api="blas"):
            return self._model.predict(inputs).astype(np.float32, copy=False)

    def close(self) -> None:
        """Nothing to free: the memory is the replica's."""

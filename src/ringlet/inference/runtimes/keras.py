"""Keras artifacts, on whichever backend Keras is set to."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.runtimes.contract import Outputs
from ringlet.inference.runtimes.keras_archive import read_description
from ringlet.libraries import require


@final
class KerasRuntime:
    """A Keras model; it computes for one caller at a time, on as many threads as its backend takes."""

    def __init__(self, path: Path) -> None:
        self.description = read_description(path)
        keras: Any = require("keras")
        try:
            self._model = keras.models.load_model(path, compile=False, safe_mode=True)
        except Exception as error:  # whatever Keras and its backend raise
            raise ModelFileError(f"model file {path} is not a readable Keras model ({str(error)[:200]})") from error
        self._lock = Lock()

    def run(self, values: NDArray[Any]) -> Outputs:
        """Compute; masks come out with their channels first, as everywhere else.

        Backends compile the model anew for every number of images, so that is rounded up to a power of two.
        """
        count = 1 << (len(values) - 1).bit_length()
        padded = np.concatenate([values, np.repeat(values[:1], count - len(values), axis=0)])
        with self._lock:
            outputs = np.asarray(self._model.predict_on_batch(padded), np.float32)[: len(values)]
        return np.ascontiguousarray(np.moveaxis(outputs, 3, 1)) if outputs.ndim == 4 else outputs

    def close(self) -> None:
        """Nothing outlives the model."""

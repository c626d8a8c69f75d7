"""Keras artifacts, on whichever backend Keras is set to."""

from __future__ import annotations

import zipfile
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.description import KEY, Description
from ringlet.inference.runtimes.contract import Outputs
from ringlet.libraries import require

_MAX_DESCRIPTION = 8 << 20


@final
class KerasRuntime:
    """A Keras model; it computes for one caller at a time, on as many threads as its backend takes."""

    def __init__(self, path: Path) -> None:
        self.description = _description(path)
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


def _description(path: Path) -> Description:
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{KEY}.json")
            if info.file_size > _MAX_DESCRIPTION:
                raise ModelFileError(f"model file {path}: its description has {info.file_size:,} bytes")
            return Description.from_json(archive.read(info).decode("ascii"))
    except KeyError:
        raise ModelFileError(
            f"model file {path} carries no description of Ringlet: write it with `ringlet export --to keras`"
        ) from None
    except OSError as error:
        raise ModelFileError(f"cannot read model file {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ModelFileError(f"model file {path} is not a .keras file ({error})") from None

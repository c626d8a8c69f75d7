"""Keras artifacts, on whichever backend Keras is set to.

Keras makes whatever class a file names: layers with code of their own (``Lambda``), layers that unpickle or read other
files. Its safe mode refuses those that were thought of, and a program may have switched it off. So the file is checked
before Keras sees it: nothing but the classes of Ringlet's own exports, and no weights that are kept in other files.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.artifact import Outputs
from ringlet.inference.description import KEY, Description
from ringlet.libraries import require
from ringlet.operations import OPERATIONS, plugin_operations


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

        Backends compile the model again for every number of images, so that is rounded up to a power of two.
        """
        count = 1 << (len(values) - 1).bit_length()
        padded = np.concatenate([values, np.repeat(values[:1], count - len(values), axis=0)])
        with self._lock:
            outputs = np.asarray(self._model.predict_on_batch(padded), np.float32)[: len(values)]
        return np.ascontiguousarray(np.moveaxis(outputs, 3, 1)) if outputs.ndim == 4 else outputs

    def close(self) -> None:
        """Nothing outlives the model."""


# -- what the file may hold -------------------------------------------------------------------------------------------
DESCRIPTION, CONFIG, WEIGHTS = f"{KEY}.json", "config.json", "model.weights.h5"
_MEMBERS = (DESCRIPTION, CONFIG, WEIGHTS, "metadata.json")
_MAX_TEXT = 8 << 20
_MAX_GROWTH = 64
"""Weights hardly compress; what would grow more than so many times is a bomb."""
_VALUES = ("__keras_tensor__", "__numpy__", "__slice__")
_ALWAYS = ("DTypePolicy", "Functional", "GlorotUniform", "InputLayer", "Rescaling", "Zeros")
_INERT = (
    *("Activation", "Average", "AveragePooling1D", "BatchNormalization", "Conv1D", "Conv2DTranspose", "Cropping2D"),
    *(
        "Dense",
        "DepthwiseConv1D",
        "Dot",
        "Dropout",
        "EinsumDense",
        "ELU",
        "Embedding",
        "GaussianNoise",
        "GRU",
        "GRUCell",
    ),
    *("GlobalAveragePooling1D", "GlobalMaxPooling1D", "GroupNormalization", "LayerNormalization", "LeakyReLU", "LSTM"),
    *("LSTMCell", "MaxPooling1D", "Maximum", "Minimum", "MultiHeadAttention", "Multiply", "Normalization", "PReLU"),
    *("ReLU", "RepeatVector", "Reshape", "RMSNormalization", "SeparableConv2D", "Sequential", "Softmax", "Subtract"),
    *("SpatialDropout2D", "UnitNormalization", "UpSampling2D", "ZeroPadding1D"),
    *("Constant", "GlorotNormal", "HeNormal", "HeUniform", "Identity", "LecunNormal", "LecunUniform", "Ones"),
    *("Orthogonal", "RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling"),
    *("L1", "L1L2", "L2", "MaxNorm", "NonNeg", "UnitNorm"),
)
"""Layers, initialisers, regularisers and constraints of Keras that compute and nothing else: what models of programs
are made of."""
CLASSES = frozenset(
    (*_ALWAYS, *_INERT, *(name for operation in OPERATIONS.values() for name in operation.keras_classes))
)
"""All that an export may name."""


def read_description(path: Path) -> Description:
    """What the file says about itself, after a look at everything in it; anything wrong is a ModelFileError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if DESCRIPTION not in archive.namelist():
                raise ModelFileError(
                    f"model file {path} carries no description of Ringlet: write it with `ringlet export --to keras`"
                )
            description = Description.from_json(_read(archive, DESCRIPTION, path, _MAX_TEXT).decode("ascii"))
            _check_members(archive, path)
            _check_classes(json.loads(_read(archive, CONFIG, path, _MAX_TEXT)), path)
            _check_weights(_read(archive, WEIGHTS, path, _MAX_GROWTH * path.stat().st_size), path)
    except OSError as error:
        raise ModelFileError(f"cannot read model file {path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelFileError(f"model file {path} is not a .keras file ({str(error)[:200]})") from None
    return description


def _read(archive: zipfile.ZipFile, name: str, path: Path, limit: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > limit:
        raise ModelFileError(f"model file {path}: {name} in it has {size:,} bytes, expected at most {limit:,}")
    return archive.read(name)


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    names = archive.namelist()
    unknown = sorted(set(names) - set(_MEMBERS))
    missing = sorted(set(_MEMBERS) - set(names))
    if unknown or missing or len(names) != len(_MEMBERS):
        what = f"holds '{unknown[0][:80]}'" if unknown else f"lacks '{missing[0]}'" if missing else "holds a file twice"
        raise ModelFileError(f"model file {path} {what}: expected {', '.join(_MEMBERS)}, as exports of Ringlet have")


def _check_classes(config: Any, path: Path) -> None:
    for entry in _objects(config):
        name, module = entry["class_name"], entry.get("module")
        if name in _VALUES and module is None:
            continue
        known = isinstance(name, str) and (name in CLASSES or name in _classes_of_plugins())
        if not known or not _is_own(module) or entry.get("registered_name") not in (None, name):
            shown = f"{module}.{name}"[:120]
            raise ModelFileError(
                f"model file {path} makes a '{shown}', which no export of Ringlet has, and which may run code or read "
                "files: it is refused. Write the file with `ringlet export --to keras`"
            )


def _classes_of_plugins() -> set[str]:
    """What operations of installed packages add."""
    return {name for operation in plugin_operations() for name in operation.keras_classes}


def _is_own(module: Any) -> bool:
    return isinstance(module, str) and (module == "keras" or module.startswith("keras."))


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects that a configuration names, however deep."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "class_name" in item:
                yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _check_weights(content: bytes, path: Path) -> None:
    """Refuse tensors that are kept in, or reached through, another file: HDF5 would read any file as weights."""
    h5py: Any = require("h5py")
    with h5py.File(io.BytesIO(content), "r") as file:
        groups = [file]
        file.visititems(lambda _, item: groups.append(item) if isinstance(item, h5py.Group) else None)
        for group in groups:
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink) or _is_elsewhere(group[name]):
                    raise ModelFileError(
                        f"model file {path}: its weights '{name[:80]}' are kept in another place: expected all of them "
                        "in the file itself"
                    )


def _is_elsewhere(item: Any) -> bool:
    """Whether the numbers of a data set are in other files."""
    return hasattr(item, "is_virtual") and bool(item.external or item.is_virtual)

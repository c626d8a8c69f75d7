"""State files of other packages as arrays in the layout of the specs.

Nothing is unpickled but by PyTorch's reader of weights, which makes tensors only.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError, RingletError
from ringlet.io.safetensors import read_arrays, read_header
from ringlet.libraries import require

Roles = dict[str, NDArray[Any]]
Layers = dict[str, Roles]
"""By the name of a layer: its tensors by role."""

TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".safetensors")
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")
_WRAPPERS = ("state_dict", "model", "model_state_dict")
_NORM_ROLES = {"weight": "scale", "bias": "shift"}
_KERAS_ROLES = {
    "kernel": "weight",
    "depthwise_kernel": "weight",
    "bias": "bias",
    "gamma": "scale",
    "beta": "shift",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


# -- PyTorch -----------------------------------------------------------------------------------------------------------
def read_torch(path: Path) -> Layers:
    """A state dict, as PyTorch or safetensors has written it."""
    arrays = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickled(path)
    layers: Layers = {}
    for key, values in arrays.items():
        layer, _, role = _modern(key.removeprefix("module.")).rpartition(".")
        layers.setdefault(layer, {})[role] = values
    return {name: _torch_roles(roles) for name, roles in layers.items()}


def _torch_roles(roles: Roles) -> Roles:
    if "running_mean" not in roles:
        return roles
    return {_NORM_ROLES.get(role, role): values for role, values in roles.items() if role != "num_batches_tracked"}


def _modern(key: str) -> str:
    """Published files of DenseNet have names of an old version: ``denselayer1.norm.1.weight``."""
    return re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key)


def _read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            return read_arrays(file, read_header(file, path.stat().st_size))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read weights {path}: {error}") from None


def _read_pickled(path: Path) -> dict[str, NDArray[Any]]:
    torch = require("torch")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ModelFileError(
            f"cannot read weights {path}: {reason}. Expected a state dict: torch.save(model.state_dict(), …)"
        ) from None
    for wrapper in _WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(wrapper), Mapping):
            found = found[wrapper]
    if not isinstance(found, Mapping) or not all(torch.is_tensor(value) for value in found.values()):
        raise ModelFileError(f"weights {path}: expected a state dict, names with tensors")
    return {str(key): value.to(torch.float32).numpy() for key, value in found.items()}


# -- Keras -------------------------------------------------------------------------------------------------------------
def read_keras(path: Path, network: str) -> Layers:
    """A whole model (``.keras``), or weights as Keras 2 (``.h5``) or Keras 3 (``.weights.h5``) writes them."""
    try:
        with warnings.catch_warnings():  # Keras converts arrays by NumPy's older rules
            warnings.simplefilter("ignore", DeprecationWarning)
            return _read_keras(path, network)
    except RingletError:
        raise
    except Exception as error:
        raise ModelFileError(f"cannot read weights {path}: {str(error).splitlines()[0]}") from None


def _read_keras(path: Path, network: str) -> Layers:
    if path.suffix == ".keras":
        return _of_model(require("keras").saving.load_model(path, compile=False, safe_mode=True))
    with require("h5py").File(path, "r") as file:
        group = file.get("model_weights", file)
        if "layer_names" in group.attrs:
            layers = {_text(name): _of_group(group[name]) for name in group.attrs["layer_names"]}
            return _numbered({name: roles for name, roles in layers.items() if roles})
        num_classes = _num_outputs(file)
    return _of_model(_rebuilt(network, num_classes, path))


def _of_group(group: Any) -> Roles:
    """A layer of a file of Keras 2."""
    names = [_text(name) for name in group.attrs["weight_names"]]
    return _keras_roles({name.rpartition("/")[2].removesuffix(":0"): np.asarray(group[name]) for name in names})


def _of_model(model: Any) -> Layers:
    convert = require("keras").ops.convert_to_numpy
    return _numbered(
        {
            layer.name: _keras_roles({variable.name: convert(variable) for variable in layer.weights})
            for layer in model.layers
            if layer.weights
        }
    )


def _keras_roles(arrays: Mapping[str, NDArray[Any]]) -> Roles:
    return {_KERAS_ROLES.get(name, name): _channels_first(name, values) for name, values in arrays.items()}


def _channels_first(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if name == "depthwise_kernel":
        return np.ascontiguousarray(values.transpose(2, 3, 0, 1).reshape(-1, 1, *values.shape[:2]))
    if name != "kernel":
        return values
    return np.ascontiguousarray(values.transpose(3, 2, 0, 1) if values.ndim == 4 else values.T)


def _numbered(layers: Layers) -> Layers:
    """Names that Keras has counted (``conv2d_17``) become ``conv2d#0``, … in their order; older slashes underscores."""
    found: Layers = {}
    counted: dict[str, list[tuple[int, str]]] = {}
    for name in layers:
        match = re.fullmatch(r"(conv2d|batch_normalization)(?:_(\d+))?", name)
        if match:
            counted.setdefault(match[1], []).append((int(match[2] or 0), name))
        else:
            found[name.replace("/", "_")] = layers[name]
    for kind, names in counted.items():
        found |= {f"{kind}#{place}": layers[name] for place, (_, name) in enumerate(sorted(names))}
    return found


def _num_outputs(file: Any) -> int | None:
    """Of the last dense layer of a Keras 3 file; None without one."""
    dense = [name for name in file.get("layers", {}) if name.startswith("dense")]
    last = max(dense, key=lambda name: int(name.rpartition("_")[2]) if "_" in name else 0, default=None)
    return None if last is None else int(file["layers"][last]["vars"]["0"].shape[1])


_APPLICATIONS = {
    **{f"resnet{depth}": f"ResNet{depth}" for depth in (50, 101, 152)},
    **{f"densenet{depth}": f"DenseNet{depth}" for depth in (121, 169, 201)},
    "vgg16": "VGG16",
    "vgg19": "VGG19",
    "inceptionv3": "InceptionV3",
}


def _rebuilt(network: str, num_classes: int | None, path: Path) -> Any:
    """Keras 3 leaves the names of layers out of files of weights: its own network knows them."""
    if network not in _APPLICATIONS:
        raise ModelFileError(f"weights {path}: Keras applications have no '{network}'")
    make = getattr(require("keras").applications, _APPLICATIONS[network])
    top = {"include_top": False} if num_classes is None else {"classes": num_classes}
    model = make(weights=None, **top)
    model.load_weights(path)
    return model


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)

"""First weights: each tensor from its own random stream, keyed by the seed and the tensor's name.

So a tensor's values do not depend on the order of creation, on other layers or on the number of workers; float32
values are the rounded float64 values. With ``fan_in`` and ``fan_out`` the number of products in an output (input)
element, the variances are

- glorot (Glorot and Bengio 2010): ``2 / (fan_in + fan_out)``
- he (He et al. 2015): ``2 / fan_in``
- lecun (LeCun et al. 1998): ``1 / fan_in``

uniform in ``±sqrt(3 variance)`` or normal. Biases, shifts and running means start at 0, scales and running variances
at 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.errors import ConfigError, show
from ringlet.models.spec import ModelSpec, ParameterInfo
from ringlet.operations.attributes import is_integer

Floats = NDArray[np.floating[Any]]
CHUNK = 1 << 18

_VARIANCES: Mapping[str, Callable[[ParameterInfo], float]] = {
    "glorot": lambda info: 2 / (info.fan_in + info.fan_out),
    "he": lambda info: 2 / info.fan_in,
    "lecun": lambda info: 1 / info.fan_in,
}
_CONSTANTS = {"zeros": 0.0, "ones": 1.0}


def initialize(spec: ModelSpec, seed: int = 0, dtype: DTypeLike = "float32") -> dict[str, Floats]:
    """First values of every parameter and state tensor of ``spec``, by name."""
    checked = _check_dtype(dtype)
    return {info.name: initial_values(info, seed, checked) for info in (*spec.parameters, *spec.state)}


def initial_values(info: ParameterInfo, seed: int, dtype: DTypeLike = "float32") -> Floats:
    """First values of one tensor."""
    values: Floats = np.empty(info.shape, _check_dtype(dtype))
    if info.initializer in _CONSTANTS:
        values.fill(_CONSTANTS[info.initializer])
    else:
        _fill(values.reshape(-1), info, stream(seed, info.name))
    return values


def stream(seed: int, name: str) -> np.random.Generator:
    """The counter-based random stream that belongs to ``seed`` and ``name``."""
    if not is_integer(seed) or not 0 <= seed < 1 << 64:
        raise ConfigError(f"seed must be an integer from 0 to 2^64 - 1, got {show(seed)}")
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def _fill(values: Floats, info: ParameterInfo, generator: np.random.Generator) -> None:
    """Draw in float64 by chunks, so that the dtype does not change the values and large tensors need no second copy."""
    kind, _, distribution = info.initializer.partition("_")
    deviation = sqrt(_VARIANCES[kind](info))
    for start in range(0, values.size, CHUNK):
        part = values[start : start + CHUNK]
        if distribution == "uniform":
            part[:] = generator.uniform(-sqrt(3) * deviation, sqrt(3) * deviation, part.size)
        else:
            part[:] = generator.normal(0.0, deviation, part.size)


def _check_dtype(dtype: DTypeLike) -> np.dtype[np.float32] | np.dtype[np.float64]:
    try:
        name = np.dtype(dtype).name
    except (TypeError, ValueError):
        name = ""
    if name == "float32":
        return np.dtype(np.float32)
    if name == "float64" and dtype is not None:
        return np.dtype(np.float64)
    raise ConfigError(f"dtype must be float32 or float64, got {show(dtype)}")

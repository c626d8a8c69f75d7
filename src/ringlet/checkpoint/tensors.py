"""Named arrays of a checkpoint in a safetensors file: names and types are checked on the way in and out."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint.manifest import open_regular
from ringlet.errors import CheckpointError, UnreadableCheckpointError, show
from ringlet.io import safetensors

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")


def write_tensors(stream: BinaryIO, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``arrays`` as a safetensors file; what could not be read back is refused."""
    for name, array in arrays.items():
        _check_name(name)
        known = safetensors.NAMES
        if not isinstance(array, np.ndarray) or array.dtype not in known or array.ndim > safetensors.MAX_DIMENSIONS:
            kind = getattr(array, "dtype", type(array).__name__)
            raise CheckpointError(
                f"array '{name}' is of {kind}: expected a NumPy array of {', '.join(map(str, known))}"
            )
    safetensors.write_tensors(stream, arrays)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a safetensors file; it asks for no more memory than the file has bytes."""
    with open_regular(path) as file:
        try:
            header = safetensors.read_header(file, os.fstat(file.fileno()).st_size)
            for name in header.entries:
                _check_name(name)
            return safetensors.read_arrays(file, header)
        except (CheckpointError, ValueError) as error:
            raise CheckpointError(f"{path.name}: {error}") from None
        except OSError as error:
            raise UnreadableCheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from None


def _check_name(name: object) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise CheckpointError(f"array name {show(name)}: expected letters, digits, '_', '.' and '-'")

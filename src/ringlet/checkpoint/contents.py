"""What a checkpoint holds, its checks, and the two files that are not a model file: named arrays, and metrics.

The metrics of every finished epoch are one JSON object per line: they grow with a run, so they have their own file.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint.manifest import open_regular
from ringlet.errors import CheckpointError, UnreadableCheckpointError, show
from ringlet.io import jsontext, safetensors
from ringlet.io.storage import Place
from ringlet.models.module_spec import ModuleSpec, Network
from ringlet.models.spec import ModelSpec
from ringlet.operations.attributes import is_integer

MODEL, OPTIMIZER, HISTORY = "model.safetensors", "optimizer.safetensors", "history.ndjson"
MAX_STEP = 10**15
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FLOATS = (np.dtype("<f4"), np.dtype("<f8"))


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that training needs to resume from ``step``, or a model alone (no optimizer, no training).

    ``training`` and ``config`` are JSON values: texts as keys, finite numbers; floats come back to the bit and tuples
    come back as lists.
    """

    step: int
    """Updates done; names the directory."""
    spec: ModelSpec | ModuleSpec
    tensors: Mapping[str, NDArray[Any]]
    """Parameters and running statistics by name; of a module all its tensors."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """As in model files: labels, normalisation, loss, metrics, data set, version."""
    optimizer: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Flat state arrays by name, each as long as the parameters."""
    training: dict[str, Any] = field(default_factory=dict)
    """Cursor, schedule, meters: not looked at here."""
    history: Sequence[Mapping[str, float]] = ()
    """The metrics of every finished epoch."""
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in (*self.tensors.values(), *self.optimizer.values()))


@dataclass(frozen=True)
class Entry:
    """A checkpoint on disk."""

    step: int
    path: Place
    num_bytes: int
    time: float
    """When it was written, in seconds since 1970."""
    problem: str | None = None
    """Why it cannot be used; None if it was found to be good, or not looked at."""
    state: str = "ok"
    """``ok``, or with a problem what it means: ``damaged``, ``unreadable`` or ``too new``."""
    checkpoint: Checkpoint | None = None
    """Its content without arrays and history, if it was verified and is good."""


def check(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that could not be read back."""
    if not is_integer(checkpoint.step) or not 0 <= checkpoint.step < MAX_STEP:
        raise CheckpointError(f"checkpoint of step {show(checkpoint.step)}: expected a number of updates")
    check_optimizer(checkpoint.spec, checkpoint.optimizer)
    if not all(isinstance(text, str) for pair in checkpoint.versions.items() for text in pair):
        raise CheckpointError(f"versions must map texts to texts, got {show(checkpoint.versions)}")


def check_optimizer(spec: Network, state: Mapping[str, NDArray[Any]]) -> None:
    """Refuse state arrays that cannot belong to the network's parameters."""
    for name, array in state.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise CheckpointError(f"optimizer state {show(name)}: expected a name of letters, digits and '_'")
        if array.dtype not in _FLOATS:
            raise CheckpointError(f"optimizer state '{name}' is of {array.dtype}, expected float32 or float64")
        if array.shape != (spec.num_parameters,):
            raise CheckpointError(
                f"optimizer state '{name}' has shape {array.shape}, model '{spec.name}' has {spec.num_parameters:,} "
                "parameters"
            )


# -- named arrays in a safetensors file -------------------------------------------------------------------------------
_ARRAY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")


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
    if not isinstance(name, str) or _ARRAY_NAME.fullmatch(name) is None:
        raise CheckpointError(f"array name {show(name)}: expected letters, digits, '_', '.' and '-'")


# -- metrics by epoch -------------------------------------------------------------------------------------------------
Row = Mapping[str, float]
MAX_LINE = 1 << 16
_LINES_AT_ONCE = 1_000


def write_history(stream: BinaryIO, rows: Sequence[Row]) -> None:
    """Write one line per row; numbers come back to the bit, those that are not finite as text."""
    for start in range(0, len(rows), _LINES_AT_ONCE):
        lines = [_line(row) for row in rows[start : start + _LINES_AT_ONCE]]
        stream.write("".join(lines).encode("ascii"))


def _line(row: Row) -> str:
    text = jsontext.canonical({name: value if math.isfinite(value) else str(value) for name, value in row.items()})
    if len(text) >= MAX_LINE:
        raise CheckpointError(f"the metrics of an epoch take {len(text):,} characters, at most {MAX_LINE:,} are kept")
    return text + "\n"


def read_history(path: Path) -> list[dict[str, float]]:
    """All rows, each read without trust in the file."""
    rows: list[dict[str, float]] = []
    with open_regular(path) as file:
        try:
            while line := file.readline(MAX_LINE + 1):
                rows.append(parse_row(jsontext.parse(_complete(line).decode("ascii"))))
        except OSError as error:
            raise UnreadableCheckpointError(f"{path.name} cannot be read: {error.strerror or error}") from None
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path.name}, line {len(rows) + 1}: {error}") from None
    return rows


def _complete(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise ValueError("is too long or ends before its end")
    return line


def parse_row(value: Any) -> dict[str, float]:
    """A row from plain values; what is not finite is written as text. TypeError or ValueError for anything else."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not a row of metrics")
    return {str(name): parse_number(number) for name, number in value.items()}


def parse_number(value: Any) -> float:
    """A float from a number or from text such as ``nan``."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{value!r:.40} is not a number")
    return float(value)

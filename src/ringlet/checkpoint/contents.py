"""What a checkpoint holds, and its checks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CheckpointError, show
from ringlet.models.spec import ModelSpec
from ringlet.operations.attributes import is_integer

MODEL, OPTIMIZER, HISTORY = "model.safetensors", "optimizer.safetensors", "history.ndjson"
MAX_STEP = 10**15
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FLOATS = (np.dtype("<f4"), np.dtype("<f8"))


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that training needs to go on from ``step``, or a model alone (no optimizer, no training).

    ``training`` and ``config`` are JSON values: texts as keys, finite numbers; floats come back to the bit and tuples
    come back as lists.
    """

    step: int
    """Updates done; names the directory."""
    spec: ModelSpec
    tensors: Mapping[str, NDArray[Any]]
    """Parameters and running statistics by name."""
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
    path: Path
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


def check_optimizer(spec: ModelSpec, state: Mapping[str, NDArray[Any]]) -> None:
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

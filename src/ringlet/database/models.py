"""A model as a database keeps it: a row with its bytes, their SHA-256, and what the artifact says about itself.

Models that are loaded are cached by their SHA-256: a warm call never loads one again.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, final

from ringlet.database.names import Reference
from ringlet.errors import ModelFileError, UsageError
from ringlet.inference.artifact import Artifact, Kind
from ringlet.inference.description import Description
from ringlet.inference.predictor import Predictor

KINDS: tuple[Kind, ...] = ("openvino", "onnx", "ringlet")
"""What may be stored: graphs and weights. PyTorch and Keras artifacts hold programs, which no database should run."""


@dataclass(frozen=True)
class NewModel:
    """A model that is to be stored."""

    name: str
    artifact: Artifact
    description: Description
    sha256: str

    @classmethod
    def read(cls, path: Path | str, name: str) -> NewModel:
        """The model at ``path``, opened once to see that it works."""
        artifact = read_artifact(path)
        with open_predictor(artifact) as predictor:
            description = predictor.description
        if not description.preprocessing.has_known_colours:
            shape = description.preprocessing.input_shape
            raise UsageError(f"'{path}' takes inputs of shape {shape}, which no picture in a database has")
        return cls(name, artifact, description, fingerprint(artifact))


@dataclass(frozen=True)
class Entry:
    """A row of the table of models, without its bytes."""

    name: str
    version: int
    sha256: str
    kind: str
    num_bytes: int
    description: Description
    created: datetime
    """In UTC."""

    @classmethod
    def read(cls, row: Sequence[Any]) -> Entry:
        """From the columns of :data:`ringlet.database.statements.ENTRY_COLUMNS`."""
        name, version, sha256, kind, description, created, num_bytes = row
        when = created.astimezone(UTC) if created.tzinfo is not None else created.replace(tzinfo=UTC)
        return cls(name, version, sha256, kind, num_bytes, Description.from_json(description), when)

    @property
    def reference(self) -> Reference:
        """How queries name it."""
        return Reference(self.name, self.version)


def read_artifact(path: Path | str) -> Artifact:
    """The artifact at ``path`` in memory; those that may hold programs are refused, since rows must not run any."""
    found = Artifact.find(path)
    if found.kind not in KINDS:
        raise UsageError(
            f"'{path}' is a {found.kind} model, which may hold a program: databases take OpenVINO and ONNX exports and "
            "Ringlet's own model files. Export with: ringlet export … --to openvino"
        )
    return found.loaded()


def fingerprint(artifact: Artifact) -> str:
    """SHA-256 over the kind, the lengths and the bytes of an artifact in memory; it is what caches go by."""
    network, weights = _parts(artifact)
    digest = hashlib.sha256(f"{artifact.kind} {len(network)} {len(weights)}\n".encode())
    digest.update(network)
    digest.update(weights)
    return digest.hexdigest()


def stored_artifact(what: str, sha256: str, kind: str, network: bytes, weights: bytes | None) -> Artifact:
    """The artifact in a row that may have been damaged or changed; anything wrong is a ModelFileError."""
    known: Kind | None = next((candidate for candidate in KINDS if candidate == kind), None)
    if known is None:
        raise ModelFileError(f"{what} is of kind '{kind}': expected {', '.join(KINDS)}")
    artifact = Artifact(known, network, weights)
    found = fingerprint(artifact)
    if found != sha256:
        raise ModelFileError(
            f"{what} is not what was installed: its SHA-256 is {found[:16]}…, expected {sha256[:16]}…. "
            "Remove it and install it again"
        )
    return artifact


def open_predictor(artifact: Artifact, *, threads: int = 1, batch_size: int = 32) -> Predictor:
    """The artifact, ready to predict. Ringlet's own files are read from a file that is gone afterwards."""
    if artifact.kind != "ringlet" or isinstance(artifact.network, Path):
        return Predictor(artifact, threads=threads, batch_size=batch_size)
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(artifact.network)
        file.flush()
        return Predictor(Artifact("ringlet", Path(file.name)), threads=threads, batch_size=batch_size)


def _parts(artifact: Artifact) -> tuple[bytes, bytes]:
    assert isinstance(artifact.network, bytes)
    assert not isinstance(artifact.weights, Path)
    return artifact.network, artifact.weights or b""


# -- loaded models ----------------------------------------------------------------------------------------------------
CAPACITY = 4


@final
class PredictorCache:
    """The ``capacity`` predictors of this process that were used last; threads may share it."""

    def __init__(self, *, threads: int, batch_size: int, capacity: int = CAPACITY) -> None:
        self._threads, self._batch_size, self._capacity = threads, batch_size, capacity
        self._predictors: OrderedDict[str, Predictor] = OrderedDict()
        self._lock = Lock()
        self.num_loads = 0
        """How often a model was loaded."""

    def __contains__(self, sha256: str) -> bool:
        return sha256 in self._predictors

    def get(self, sha256: str, load: Callable[[], Artifact]) -> Predictor:
        """The predictor of a model; ``load`` gives its verified content, if it is not here yet.

        The oldest one goes when there are too many. It is not closed: another thread may be using it.
        """
        with self._lock:
            found = self._predictors.get(sha256)
            if found is None:
                found = open_predictor(load(), threads=self._threads, batch_size=self._batch_size)
                self.num_loads += 1
            self._predictors[sha256] = found
            self._predictors.move_to_end(sha256)
            if len(self._predictors) > self._capacity:
                self._predictors.popitem(last=False)
            return found

    def close(self) -> None:
        """Free all; no one may be using one."""
        while self._predictors:
            self._predictors.popitem()[1].close()

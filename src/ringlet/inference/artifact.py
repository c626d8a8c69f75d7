"""Artifacts: trained networks as they are kept, in files or (for databases) in memory; opened, each is a runtime.

Only a program that is named itself is ever run. To name data, a folder or a file of weights, reads data, no
matter what lies beside it: folders and downloads are filled by others.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.data.cache import RemotePath, located
from ringlet.errors import ModelFileError, UsageError
from ringlet.inference.description import Description
from ringlet.io.storage import Address
from ringlet.models.files import is_model_file

Kind = Literal["ringlet", "openvino", "onnx", "torch", "torch-export", "keras"]

SUFFIXES: dict[str, Kind] = {
    ".safetensors": "ringlet",
    ".xml": "openvino",
    ".onnx": "onnx",
    ".py": "torch",
    ".pt2": "torch-export",
    ".keras": "keras",
}
WEIGHTS_SUFFIXES: dict[Kind, str] = {"openvino": ".bin", "torch": ".safetensors"}
"""Of kinds that keep their weights in a second file, beside the first."""
PROGRAM_SUFFIX = ".py"
PROGRAM_SUFFIXES = (PROGRAM_SUFFIX, ".pt2")
"""Opening such a file may run what is in it: PyTorch's archive of a module may hold pickles."""
_RUN_MODEL = "model.safetensors"
Outputs = NDArray[np.float32]


class Runtime(Protocol):
    """A network in some framework. Threads may call :meth:`run` at the same time."""

    @property
    def description(self) -> Description:
        """What the artifact says about itself."""

    def run(self, values: NDArray[Any]) -> Outputs:
        """Outputs ``(n, *output_shape)`` of stored values ``(n, *graph_shape)``, channels last, contiguous."""

    def close(self) -> None:
        """Let go of everything; :meth:`run` must not be called any more."""


@dataclass(frozen=True)
class Artifact:
    """A network of some kind: its file, or its content; ``weights`` is the second half of those that have two."""

    kind: Kind
    network: Path | bytes
    weights: Path | bytes | None = None

    @classmethod
    def find(cls, path: Path | str | Address) -> Artifact:
        """The artifact at ``path``: a file by its ending, a run directory, or a folder with one artifact in it.

        A program (``.py`` or ``.pt2``, exports to PyTorch) is found by its own name alone, never through its folder or
        weights.
        What is at an address such as ``s3://bucket/net.onnx`` is brought into the cache.
        """
        location = _main_file(located(path))
        kind = SUFFIXES.get(location.suffix.lower())
        if kind is None:
            raise UsageError(
                f"'{path}' is no model that can be used: expected a run directory or a file that ends in "
                f"{', '.join(SUFFIXES)}"
            )
        if not location.is_file():
            raise ModelFileError(f"cannot read model file {location}: no such file")
        second = WEIGHTS_SUFFIXES.get(kind)
        weights = location.with_suffix(second) if second else None
        if weights is not None and not weights.is_file():
            raise ModelFileError(f"model file {location} lacks its weights: expected {weights.name} beside it")
        return cls(kind, _fetched(location), None if weights is None else _fetched(weights))

    @property
    def is_program(self) -> bool:
        """Whether opening it runs code that comes with it."""
        return self.kind in ("torch", "torch-export")

    @property
    def files(self) -> list[Path]:
        """All files of an artifact that lies in files."""
        return [part for part in (self.network, self.weights) if isinstance(part, Path)]

    @property
    def num_bytes(self) -> int:
        """The size of all parts."""
        return sum(part.stat().st_size if isinstance(part, Path) else len(part) for part in self._parts)

    def loaded(self) -> Artifact:
        """The same with its content in memory: what a database stores."""
        network, *rest = (part.read_bytes() if isinstance(part, Path) else part for part in self._parts)
        return Artifact(self.kind, network, rest[0] if rest else None)

    def sha256(self) -> str:
        """Over the content of all parts, one after the other."""
        digest = hashlib.sha256()
        for part in self._parts:
            digest.update(part.read_bytes() if isinstance(part, Path) else part)
        return digest.hexdigest()

    def open(self, *, threads: int, batch_size: int) -> Runtime:
        """The network, ready to compute."""
        if self.kind == "openvino":
            from ringlet.inference.runtimes.openvino import OpenVinoRuntime

            return OpenVinoRuntime(self.network, self.weights, threads=threads)
        if self.kind == "onnx":
            from ringlet.inference.runtimes.onnx import OnnxRuntime

            return OnnxRuntime(self.network)
        if not isinstance(self.network, Path):
            raise UsageError(f"a {self.kind} model cannot be used from memory: store an OpenVINO or ONNX export")
        return _open_file(self.kind, self.network, threads, batch_size)

    @property
    def _parts(self) -> list[Path | bytes]:
        return [self.network] if self.weights is None else [self.network, self.weights]


def _fetched(path: Path) -> Path:
    """A file that is here."""
    if not isinstance(path, RemotePath):
        return path
    try:
        return path.fetched()
    except OSError as error:
        raise ModelFileError(f"cannot read model file {path.address}: {error.strerror or error}") from error


def _open_file(kind: Kind, path: Path, threads: int, batch_size: int) -> Runtime:
    if kind == "ringlet":
        from ringlet.inference.runtimes.native import NativeRuntime

        try:
            return NativeRuntime(path, threads=threads, batch_size=batch_size)
        except ModelFileError as error:
            raise ModelFileError(f"{error}{_program_hint(path)}") from None
    if kind == "torch":
        from ringlet.inference.runtimes.torch import TorchRuntime

        return TorchRuntime(path, threads=threads)
    if kind == "torch-export":
        from ringlet.inference.runtimes.torch_export import TorchExportRuntime

        return TorchExportRuntime(path, threads=threads)
    from ringlet.inference.runtimes.keras import KerasRuntime

    return KerasRuntime(path)


def _program_hint(weights: Path) -> str:
    """Of a file that is no model: that it may be the weights of a program beside it."""
    program = weights.with_suffix(PROGRAM_SUFFIX)
    if not program.is_file():
        return ""
    return f". If it holds the weights of the program {program.name}, and you trust that, name '{program}'"


def _main_file(path: Path) -> Path:
    """The file that tells what an artifact is; a folder has one."""
    if path.suffix.lower() == WEIGHTS_SUFFIXES["openvino"]:
        return path.with_suffix(".xml")
    if not path.is_dir():
        if not path.exists() and not path.suffix:
            raise ModelFileError(f"'{path}' does not exist: expected a run directory or a model file")
        return path
    if (path / _RUN_MODEL).is_file():
        return path / _RUN_MODEL
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    programs = [file for file in found if file.suffix.lower() in PROGRAM_SUFFIXES]
    data = [file for file in found if file not in programs and not _is_weights_of(file, programs)]
    if len(data) != 1:
        raise ModelFileError(_no_model_in(path, data, programs))
    return data[0]


def _is_weights_of(file: Path, programs: list[Path]) -> bool:
    """Whether a file is one half of an export to PyTorch; a model beside a script of the same name is a model."""
    is_second = file.suffix.lower() == WEIGHTS_SUFFIXES["torch"] and file.with_suffix(PROGRAM_SUFFIX) in programs
    return is_second and not is_model_file(file)


def _no_model_in(folder: Path, data: list[Path], programs: list[Path]) -> str:
    if programs and not data:
        return (
            f"folder '{folder}' holds a program ({programs[0].name}) and no other model. Programs are run only if they "
            f"are named themselves: if you trust it, name '{programs[0]}'"
        )
    listed = ", ".join(file.name for file in (*data, *programs)[:6]) or "none"
    return (
        f"folder '{folder}' is no run directory (it has no {_RUN_MODEL}) and holds {len(data) + len(programs)} model "
        f"files ({listed}): name the file"
    )

"""Model files: one safetensors file that holds the network, its tensors and what is needed to use it. No pickle.

The spec is in the file's metadata (``ringlet.spec``), next to the format number and a SHA-256 over everything else,
so that a damaged file is never used. Reading trusts nothing: the header is bounded and checked before any tensor is
read, and every tensor must be one of the spec's, with its shape.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError, NewerModelFileError, SpecError, show
from ringlet.io import jsontext
from ringlet.io.disk import explain, replacing
from ringlet.io.safetensors import NAMES, Header, read_arrays, read_header, write_tensors
from ringlet.models.module_spec import ModuleSpec, Network, network_from_json
from ringlet.models.spec import ModelSpec
from ringlet.operations.attributes import Shape

Floats = NDArray[np.floating[Any]]

FORMAT = "1"
PREFIX = "ringlet."
KEY_FORMAT, KEY_SPEC, KEY_DIGEST = "ringlet.format", "ringlet.spec", "ringlet.sha256"
KEY_MODULE = "ringlet.module"
"""In a file with nothing but the weights of a module: the description of it."""
DTYPES: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: the network, every parameter and state tensor, and the caller's metadata."""

    spec: ModelSpec
    tensors: dict[str, Floats]
    metadata: dict[str, str]


@dataclass(frozen=True)
class NetworkFile:
    """The same of a network that may be a module; then all its tensors are there, of any type."""

    spec: ModelSpec | ModuleSpec
    tensors: dict[str, NDArray[Any]]
    metadata: dict[str, str]


# -- writing ----------------------------------------------------------------------------------------------------------
def save_model(
    path: str | os.PathLike[str],
    spec: ModelSpec,
    tensors: Mapping[str, Floats],
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a model file so that it is there completely or not at all; returns its path.

    ``tensors`` holds exactly the parameters and state of ``spec``, all float32 or all float64. ``metadata`` are texts
    (labels and normalisation as JSON); names that begin with ``ringlet.`` are taken.
    """
    target = Path(path)
    if not target.name or "\0" in str(target):
        raise ModelFileError(f"cannot write model file {str(target)!r}: it is not the path of a file")
    try:
        with replacing(target) as draft, draft.open("xb") as file:
            write_model(file, spec, tensors, metadata)
    except OSError as error:
        num_bytes = sum(tensor.nbytes for tensor in tensors.values())
        raise ModelFileError(f"cannot write model file {target}: {explain(error, target, num_bytes)}") from error
    return target


def write_model(
    stream: BinaryIO,
    spec: ModelSpec | ModuleSpec,
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write what :func:`save_model` writes to a stream, which must take all it is given; of a module all tensors."""
    arrays = _check_tensors(spec, tensors)
    header = {KEY_FORMAT: FORMAT, KEY_SPEC: spec.to_json(), **_check_metadata(metadata or {})}
    header[KEY_DIGEST] = _digest(header, arrays)
    write_tensors(stream, arrays, header)


def _check_tensors(spec: ModelSpec | ModuleSpec, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    expected = _expected(spec)
    _check_names(spec, expected, tensors)
    arrays = {name: np.ascontiguousarray(tensors[name]).reshape(np.shape(tensors[name])) for name in sorted(expected)}
    dtypes = {array.dtype for array in arrays.values()}
    if isinstance(spec, ModelSpec) and (not dtypes <= set(DTYPES.values()) or len(dtypes) > 1):
        raise ModelFileError(f"tensors must be all float32 or all float64, got {', '.join(sorted(map(str, dtypes)))}")
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise ModelFileError(f"tensor '{name}' has shape {array.shape}, model '{spec.name}' needs {expected[name]}")
    return arrays


def _expected(spec: ModelSpec | ModuleSpec) -> dict[str, Shape]:
    """The shapes of all tensors of a network."""
    infos = spec.tensors if isinstance(spec, ModuleSpec) else (*spec.parameters, *spec.state)
    return {info.name: info.shape for info in infos}


def _check_names(spec: Network, expected: Mapping[str, Shape], given: Mapping[str, object]) -> None:
    missing, unknown = sorted(expected.keys() - given), sorted(map(str, given.keys() - expected))
    if missing:
        raise ModelFileError(f"tensor '{missing[0]}' of model '{spec.name}' is missing ({len(missing)} missing in all)")
    if unknown:
        raise ModelFileError(f"tensor {show(unknown[0])} does not belong to model '{spec.name}'")


def _check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ModelFileError(f"metadata must map texts to texts, got {show(key)}: {show(value)}")
        if key.startswith(PREFIX):
            raise ModelFileError(f"metadata name '{key}' is taken: names that begin with '{PREFIX}' are Ringlet's own")
        try:
            f"{key}{value}".encode()
        except UnicodeEncodeError:
            raise ModelFileError(f"metadata {show(key)} is not valid Unicode text") from None
    return dict(metadata)


def _digest(metadata: Mapping[str, str], arrays: Mapping[str, Floats]) -> str:
    """SHA-256 over the metadata, the names, kinds and shapes of the tensors, and their bytes."""
    layout = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    others = {key: value for key, value in metadata.items() if key != KEY_DIGEST}
    digest = hashlib.sha256(jsontext.canonical([others, layout]).encode("ascii"))
    for name in sorted(arrays):
        digest.update(arrays[name].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# -- reading ----------------------------------------------------------------------------------------------------------
def load_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; whatever is wrong with it is a :class:`ModelFileError` that names the file."""
    found = load_network_file(path)
    if isinstance(found.spec, ModuleSpec):
        what = f"'{found.spec.name}', a module of {found.spec.framework}"
        raise ModelFileError(f"model file {path}: {_of_module(what)}")
    return ModelFile(found.spec, found.tensors, found.metadata)


def load_network_file(path: str | os.PathLike[str]) -> NetworkFile:
    """The same for files of modules too, which only the program that has the module can use: those of checkpoints."""
    source = Path(path)
    try:
        return _load(source)
    except OSError as error:
        raise ModelFileError(f"cannot read model file {source}: {error.strerror or error}") from error
    except ValueError as error:  # a path with a zero byte
        raise ModelFileError(f"cannot read model file {str(source)!r}: {error}") from None
    except (ModelFileError, SpecError) as error:
        kind = NewerModelFileError if isinstance(error, NewerModelFileError) else ModelFileError
        raise kind(f"model file {source}: {error}") from None


def is_model_file(path: Path) -> bool:
    """Whether a file's header says that Ringlet wrote it as a model; nothing else of it is read or believed."""
    try:
        with path.open("rb") as file:
            _check_own_metadata(_read_header(file).metadata)
    except (OSError, ModelFileError):
        return False
    return True


def _of_module(what: str) -> str:
    return (
        f"it holds the weights of {what}, whose code is in the program that trained it. Load them there "
        "(module.load_state_dict, for PyTorch), or let Trainer.export write a model that needs no program"
    )


def _load(path: Path) -> NetworkFile:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelFileError("is not a regular file")
    with path.open("rb") as file:
        header = _read_header(file)
        metadata = _check_own_metadata(header.metadata)
        spec = network_from_json(metadata[KEY_SPEC])
        _check_entries(spec, header)
        tensors = _read_arrays(file, header)
    if _digest(metadata, tensors) != metadata[KEY_DIGEST]:
        raise ModelFileError("its content does not match its checksum: the file is damaged; use another copy")
    kept = {key: value for key, value in metadata.items() if not key.startswith(PREFIX)}
    return NetworkFile(spec, tensors, kept)


def _read_header(file: BufferedReader) -> Header:
    try:
        return read_header(file, os.fstat(file.fileno()).st_size)
    except ValueError as error:
        is_other = str(error).startswith("is not a safetensors file")
        hint = ". Give a run directory, or the .safetensors file in it" if is_other else ""
        raise ModelFileError(f"{error}{hint}") from None


def _read_arrays(file: BufferedReader, header: Header) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(file, header)
    except ValueError as error:
        raise ModelFileError(str(error)) from None


def _check_own_metadata(metadata: dict[str, str]) -> dict[str, str]:
    if KEY_MODULE in metadata:
        raise ModelFileError(_of_module("a module"))
    missing = [key for key in (KEY_FORMAT, KEY_SPEC, KEY_DIGEST) if key not in metadata]
    if missing:
        raise ModelFileError(f"has no '{missing[0]}' in its metadata: it was not written by Ringlet")
    found = metadata[KEY_FORMAT]
    if found != FORMAT:
        is_newer = found.isascii() and found.isdecimal() and len(found) < 9 and int(found) > int(FORMAT)
        kind = NewerModelFileError if is_newer else ModelFileError
        raise kind(f"has format {show(found)}, this version of Ringlet reads format {FORMAT}")
    return metadata


def _check_entries(spec: ModelSpec | ModuleSpec, header: Header) -> None:
    """The tensors are exactly those of the spec, with their shapes, of one dtype or, of a module, of their own."""
    expected = _expected(spec)
    _check_names(spec, expected, header.entries)
    for name, entry in header.entries.items():
        if isinstance(spec, ModelSpec) and entry.dtype not in DTYPES.values():
            raise ModelFileError(f"tensor '{name}' has dtype '{NAMES[entry.dtype]}', expected {' or '.join(DTYPES)}")
        if entry.shape != expected[name]:
            raise ModelFileError(f"tensor '{name}' has shape {list(entry.shape)}, the network needs {expected[name]}")
    if isinstance(spec, ModuleSpec):
        _check_types(spec, header)
    elif len({entry.dtype for entry in header.entries.values()}) > 1:
        raise ModelFileError("mixes float32 and float64 tensors")


def _check_types(spec: ModuleSpec, header: Header) -> None:
    for tensor in spec.tensors:
        found = header.entries[tensor.name].dtype
        if str(found) != tensor.dtype:
            raise ModelFileError(f"tensor '{tensor.name}' has dtype '{found}', the module needs '{tensor.dtype}'")

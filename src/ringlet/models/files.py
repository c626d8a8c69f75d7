"""Model files: one safetensors file that holds the network, its tensors and what is needed to use it. No pickle.

The spec is in the file's metadata (``ringlet.spec``), next to the format number and a SHA-256 over everything else,
so that a damaged file is never used. Reading trusts nothing: the header is bounded and checked by hand before any
tensor is read, and every tensor must be one of the spec's, with its shape.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ringlet.disk import explain
from ringlet.errors import ModelFileError, SpecError
from ringlet.models import jsontext
from ringlet.models.attributes import Shape, is_integer, show
from ringlet.models.spec import ModelSpec
from ringlet.models.tensor_stream import LENGTH_BYTES, write_tensors

Floats = NDArray[np.floating[Any]]

FORMAT = "1"
PREFIX = "ringlet."
KEY_FORMAT, KEY_SPEC, KEY_DIGEST = "ringlet.format", "ringlet.spec", "ringlet.sha256"
MAX_HEADER = 8 << 20
DTYPES: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: the network, every parameter and state tensor, and the caller's metadata."""

    spec: ModelSpec
    tensors: dict[str, Floats]
    metadata: dict[str, str]


@dataclass(frozen=True)
class _Entry:
    """A tensor's place in the file, relative to the end of the header."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    start: int
    stop: int


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
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.partial")
    try:
        with partial.open("xb") as file:
            write_model(file, spec, tensors, metadata)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
        _synchronise(target.parent)
    except OSError as error:
        num_bytes = sum(tensor.nbytes for tensor in tensors.values())
        raise ModelFileError(f"cannot write model file {target}: {explain(error, target, num_bytes)}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return target


def write_model(
    stream: BinaryIO, spec: ModelSpec, tensors: Mapping[str, Floats], metadata: Mapping[str, str] | None = None
) -> None:
    """Write what :func:`save_model` writes to a stream, which must take all it is given."""
    arrays = _check_tensors(spec, tensors)
    header = {KEY_FORMAT: FORMAT, KEY_SPEC: spec.to_json(), **_check_metadata(metadata or {})}
    header[KEY_DIGEST] = _digest(header, arrays)
    write_tensors(stream, arrays, header)


def _check_tensors(spec: ModelSpec, tensors: Mapping[str, Floats]) -> dict[str, Floats]:
    expected = {info.name: info.shape for info in (*spec.parameters, *spec.state)}
    _check_names(spec, expected, tensors)
    arrays = {name: np.ascontiguousarray(tensors[name]).reshape(np.shape(tensors[name])) for name in sorted(expected)}
    dtypes = {array.dtype for array in arrays.values()}
    if not dtypes <= set(DTYPES.values()) or len(dtypes) > 1:
        raise ModelFileError(f"tensors must be all float32 or all float64, got {', '.join(sorted(map(str, dtypes)))}")
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise ModelFileError(f"tensor '{name}' has shape {array.shape}, model '{spec.name}' needs {expected[name]}")
    return arrays


def _check_names(spec: ModelSpec, expected: Mapping[str, Shape], given: Mapping[str, object]) -> None:
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


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- reading ----------------------------------------------------------------------------------------------------------
def load_model_file(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model file; whatever is wrong with it is a :class:`ModelFileError` that names the file."""
    source = Path(path)
    try:
        return _load(source)
    except OSError as error:
        raise ModelFileError(f"cannot read model file {source}: {error.strerror or error}") from None
    except ValueError as error:  # a path with a zero byte
        raise ModelFileError(f"cannot read model file {str(source)!r}: {error}") from None
    except (ModelFileError, SpecError) as error:
        raise ModelFileError(f"model file {source}: {error}") from None


def _load(path: Path) -> ModelFile:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelFileError("is not a regular file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, num_header_bytes = _read_header(file, size)
        metadata = _read_metadata(header)
        spec = ModelSpec.from_json(metadata[KEY_SPEC])
        entries = _read_entries(spec, header)
        _check_layout(entries, size - LENGTH_BYTES - num_header_bytes)
        tensors = {entry.name: _read_tensor(file, entry) for entry in entries}
    if _digest(metadata, tensors) != metadata[KEY_DIGEST]:
        raise ModelFileError("its content does not match its checksum: the file is damaged; use another copy")
    kept = {key: value for key, value in metadata.items() if not key.startswith(PREFIX)}
    return ModelFile(spec, tensors, kept)


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header as a dict and its length in bytes, all lengths checked against the file's size first."""
    length = int.from_bytes(file.read(LENGTH_BYTES), "little")
    available = size - LENGTH_BYTES
    if available < 2 or not 2 <= length <= min(available, MAX_HEADER):
        raise ModelFileError(
            f"is not a safetensors file or is truncated ({size:,} bytes). Give a run directory, or the .safetensors "
            "file in it"
        )
    raw = file.read(length)
    if len(raw) != length:
        raise ModelFileError("ends inside its header: the file is truncated")
    try:
        header = jsontext.parse(raw.decode("utf-8"))
    except ValueError as error:
        raise ModelFileError(f"its header is not valid: {error}") from None
    if not isinstance(header, dict):
        raise ModelFileError("its header is not a JSON object")
    return header, length


def _read_metadata(header: dict[str, Any]) -> dict[str, str]:
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFileError("its metadata is not a mapping of texts")
    missing = [key for key in (KEY_FORMAT, KEY_SPEC, KEY_DIGEST) if key not in metadata]
    if missing:
        raise ModelFileError(f"has no '{missing[0]}' in its metadata: it was not written by Ringlet")
    if metadata[KEY_FORMAT] != FORMAT:
        raise ModelFileError(f"has format {show(metadata[KEY_FORMAT])}, this version of Ringlet reads format {FORMAT}")
    return metadata


def _read_entries(spec: ModelSpec, header: Mapping[str, Any]) -> list[_Entry]:
    """The tensors of the header in file order: exactly those of the spec, with their shapes, of one dtype."""
    expected = {info.name: info.shape for info in (*spec.parameters, *spec.state)}
    _check_names(spec, expected, header)
    entries = [_read_entry(name, header[name], shape) for name, shape in expected.items()]
    if len({entry.dtype for entry in entries}) > 1:
        raise ModelFileError("mixes float32 and float64 tensors")
    return sorted(entries, key=lambda entry: entry.start)


def _read_entry(name: str, value: Any, shape: Shape) -> _Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise ModelFileError(f"tensor '{name}' is not described by dtype, shape and data_offsets: {show(value)}")
    kind, offsets = value["dtype"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ModelFileError(f"tensor '{name}' has dtype {show(kind)}, expected {' or '.join(DTYPES)}")
    extents = value["shape"]
    if not isinstance(extents, list) or tuple(extents) != shape or not all(map(is_integer, extents)):
        raise ModelFileError(f"tensor '{name}' has shape {show(extents)}, the network needs {shape}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_integer, offsets)):
        raise ModelFileError(f"tensor '{name}' has data_offsets {show(offsets)}, expected two integers")
    return _Entry(name, DTYPES[kind], shape, *offsets)


def _check_layout(entries: list[_Entry], num_bytes: int) -> None:
    """Tensors lie one after the other, without gap or overlap, and fill the rest of the file."""
    position = 0
    for entry in entries:
        expected = position + int(np.prod(entry.shape, dtype=object)) * entry.dtype.itemsize
        if (entry.start, entry.stop) != (position, expected):
            raise ModelFileError(
                f"tensor '{entry.name}' lies at bytes {entry.start} to {entry.stop}, expected {position} to {expected}"
            )
        position = expected
    if position != num_bytes:
        raise ModelFileError(f"has {num_bytes:,} bytes of tensors, expected {position:,}: it is truncated or damaged")


def _read_tensor(file: BinaryIO, entry: _Entry) -> Floats:
    array = np.empty(entry.shape, entry.dtype)
    view = memoryview(array.reshape(-1).view(np.uint8).data)
    position = 0
    while position < len(view):
        count = file.readinto(view[position:])  # type: ignore[attr-defined]
        if not count:
            raise ModelFileError(f"ends inside tensor '{entry.name}': the file is truncated")
        position += count
    return array

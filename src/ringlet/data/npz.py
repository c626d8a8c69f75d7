"""npz files: zip archives of npy arrays, read without trusting what they declare.

An array that is stored uncompressed is memory-mapped in place; a deflated one is decompressed once, after its declared
size was checked against the archive. Python objects are refused: no file can run code.

Keys (upper or lower case): inputs ``x``, ``images``, ``data`` or ``inputs``; targets ``y``, ``labels`` or ``targets``,
or ``masks`` for segmentation. With ``_train``/``_test``/``_val`` behind or ``train_``/``test_``/``val_`` before, one
file holds all parts; without, it holds one.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringlet.data import bounded
from ringlet.errors import DataError

Part = Literal["train", "test", "validation"]

_MAX_DIRECTORY = bounded.MEBIBYTE
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
_HEADER = re.compile(
    r"\{'descr': '([^']*)', 'fortran_order': (True|False), "
    r"'shape': \((|\d{1,19}L?(?:, ?\d{1,19}L?){0,31},? ?)\),? ?\}\s*"
)
_INPUT_KEYS = ("x", "images", "image", "data", "inputs")
_TARGET_KEYS = ("y", "labels", "label", "targets", "target", "masks", "mask")
_SUFFIXES: dict[Part, tuple[str, ...]] = {"train": ("train",), "test": ("test",), "validation": ("val", "validation")}


class NpzFile:
    """The arrays of one npz file, by key; nothing is read before it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = bounded.file_size(path)
        _check_directory_size(path, self._size)
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
            raise DataError(f"{path}: not a readable npz file ({error})") from error
        self._members = {info.filename.removesuffix(".npy").lower(): info for info in infos}

    @property
    def keys(self) -> list[str]:
        """The names of the arrays, lower case."""
        return sorted(self._members)

    def is_mapped(self, key: str) -> bool:
        """Whether reading the array costs no memory of its own."""
        return self._members[key].compress_type == zipfile.ZIP_STORED

    def header(self, key: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Type and shape of an array, from its first bytes."""
        with self._guard(key), zipfile.ZipFile(self.path) as archive:
            info = self._checked(key)
            with archive.open(info) as stream:
                dtype, shape, _, _ = _parse_header(stream, f"{self.path}[{key}]", info.file_size)
        return dtype, shape

    def array(self, key: str) -> NDArray[Any]:
        """The array, memory-mapped if it is stored uncompressed."""
        with self._guard(key), zipfile.ZipFile(self.path) as archive:
            info = self._checked(key)
            with archive.open(info) as stream:
                dtype, shape, fortran, offset = _parse_header(stream, f"{self.path}[{key}]", info.file_size)
                num_bytes = math.prod(shape) * dtype.itemsize
                if info.compress_type == zipfile.ZIP_STORED:
                    content = bounded.map_bytes(self.path, self._data_offset(info) + offset, num_bytes)
                else:
                    content = bounded.inflate(stream, num_bytes, info.compress_size, self.path)
                    stream.read(1)  # reaches the end, where the checksum is compared
        values = content.view(dtype)
        return values.reshape(shape[::-1]).T if fortran else values.reshape(shape)

    def find(self, part: Part | None) -> tuple[str, str] | None:
        """Keys of inputs and targets of a part (None: of a file that holds just one part)."""
        inputs, targets = (self._first_key(names, part) for names in (_INPUT_KEYS, _TARGET_KEYS))
        return (inputs, targets) if inputs and targets else None

    def find_inputs(self) -> str | None:
        """Key of the inputs of a file that needs no targets: by name, test before other parts; else the only one."""
        parts: tuple[Part | None, ...] = (None, "test", "validation", "train")
        named = next(filter(None, (self._first_key(_INPUT_KEYS, part) for part in parts)), None)
        return named or (self.keys[0] if len(self._members) == 1 else None)

    def _first_key(self, names: tuple[str, ...], part: Part | None) -> str | None:
        if part is None:
            wanted = list(names)
        else:
            wanted = [key for name in names for end in _SUFFIXES[part] for key in (f"{name}_{end}", f"{end}_{name}")]
        return next((key for key in wanted if key in self._members), None)

    def _checked(self, key: str) -> zipfile.ZipInfo:
        info = self._members[key]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise DataError(f"{self.path}[{key}]: encrypted or of an unusual compression: write it with numpy.savez")
        if info.header_offset + info.compress_size > self._size:
            raise DataError(
                f"{self.path}[{key}]: truncated: expected {info.header_offset + info.compress_size:,} bytes, "
                f"found {self._size:,}"
            )
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise DataError(f"{self.path}[{key}]: declares {info.file_size:,} bytes but stores {info.compress_size:,}")
        return info

    def _data_offset(self, info: zipfile.ZipInfo) -> int:
        with bounded.open_file(self.path) as file:
            file.seek(info.header_offset)
            local = file.read(30)
        name_length, extra_length = struct.unpack("<26xHH", local)
        return int(info.header_offset + 30 + name_length + extra_length)

    def _guard(self, key: str) -> _Guard:
        return _Guard(f"{self.path}[{key}]")


class _Guard:
    """Turns what zipfile and zlib raise into DataError."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        known = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, struct.error)
        if isinstance(error, known):
            raise DataError(f"{self._what}: damaged ({error}). Write or fetch the file again.") from error


def _check_directory_size(path: Path, size: int) -> None:
    """Refuse archives whose table of contents alone would fill the memory."""
    with bounded.open_file(path) as file:
        file.seek(max(0, size - (1 << 16) - 98))
        tail = file.read()
    sizes = []
    for signature, layout in ((b"PK\x05\x06", "<12xI"), (b"PK\x06\x06", "<40xQ")):
        found = tail.rfind(signature)
        if 0 <= found <= len(tail) - struct.calcsize(layout):
            sizes.append(struct.unpack_from(layout, tail, found)[0])
    declared = [value for value in sizes if value != 0xFFFFFFFF]
    if declared and max(declared) > _MAX_DIRECTORY:
        raise DataError(f"{path}: its table of contents has {max(declared):,} bytes: expected a few arrays")


def _parse_header(stream: bounded.Stream, what: str, size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """Type, shape, Fortran order and length of an npy header; ``size`` is what the whole array may occupy."""
    head = stream.read(8)
    if len(head) < 8 or head[:6] != b"\x93NUMPY" or head[6] not in (1, 2, 3):
        raise DataError(f"{what}: not an npy array (starts with {head[:6]!r}): write the file with numpy.savez")
    width = 2 if head[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > 65_536:
        raise DataError(f"{what}: npy header of {length:,} bytes: expected at most 65,536")
    text = stream.read(length).decode("utf-8", errors="replace")
    match = _HEADER.fullmatch(text)
    if match is None:
        raise DataError(f"{what}: malformed npy header {text[:80]!r}")
    if _DTYPE.fullmatch(match[1]) is None:
        raise DataError(
            f"{what}: values of type {match[1][:40]!r}: expected numbers (objects are refused, since they can run code)"
        )
    dtype = np.dtype(match[1])
    shape = tuple(int(number) for number in re.findall(r"\d+", match[3]))
    offset = 8 + width + length
    expected = offset + math.prod(shape) * dtype.itemsize
    if expected != size:
        raise DataError(f"{what}: shape {shape} of {dtype} needs {expected:,} bytes, but the archive holds {size:,}")
    return dtype, shape, match[2] == "True", offset

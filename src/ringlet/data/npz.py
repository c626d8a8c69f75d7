"""npz files: zip archives of npy arrays, read without trusting what they declare, and the sources made of them.

An array that is stored uncompressed is memory-mapped in place; a deflated one is decompressed once, after its declared
size was checked against the archive. Python objects are refused: no file can run code.

Keys (upper or lower case): inputs ``x``, ``images``, ``data`` or ``inputs``; targets ``y``, ``labels`` or ``targets``,
or ``masks`` for segmentation; how much samples count in the loss ``w``, ``weights`` or ``sample_weights``. With
``_train``/``_test``/``_val`` after or ``train_``/``test_``/``val_`` before, one file holds all parts; without, it
holds one.

Layout of inputs: (n, h, w) are images of one channel. Of four axes, the one of length 1, 3 or 4 is the channel; when
both the second and the last qualify or neither does, the second is (NCHW), unless ``input_shape`` says otherwise.
(n, f) are plain features. Targets: integers (n,) or (n, 1) are classes; rows (n, k) of zeros and a single one are
classes, too, of zeros and any number of ones labels; whole (n, h, w), (n, 1, h, w) or (n, h, w, 1) are masks
(:mod:`ringlet.data.masks`); other floats are values to predict, (n,) or (n, k), or (n, k, h, w) for every pixel. What
could be several things is decided by the option ``targets``.
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
from ringlet.data.masks import MaskMeaning
from ringlet.data.normalization import BYTES, Normalization
from ringlet.data.requests import Parts, Request
from ringlet.data.source import ArraySource, Indices, Samples, Source, Task, as_inputs, check_labels, gather
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


# -- sources: which axis is which, and what the targets mean ----------------------------------------------------------
_CHANNELS = (1, 3, 4)
_ROWS = 65_536
_WEIGHT_KEYS = ("w", "weights", "sample_weights", "sample_weight")


class MaskedArraySource:
    """Images and masks as arrays."""

    task: Task = "segmentation"

    def __init__(self, images: NDArray[Any], masks: NDArray[Any], meaning: MaskMeaning, what: str) -> None:
        self._images, self._masks, self._meaning, self._what = images, masks, meaning, what
        self.input_shape: tuple[int, ...] = tuple(images.shape[1:])
        self.num_classes = meaning.num_classes

    def __len__(self) -> int:
        return len(self._images)

    def read(self, indices: Indices) -> Samples:
        """Gather images and masks; a binary mask is made of zeros and ones whatever its stored values are."""
        height, width = self.input_shape[1:]
        targets = np.empty((len(indices), *self._meaning.target_shape(height, width)), self._meaning.dtype)
        for row, index in enumerate(indices.tolist()):
            targets[row] = self._meaning.target(self._masks[index, 0], f"{self._what}, mask {index}")
        return as_inputs(gather(self._images, indices)), targets


def with_channels_first(values: NDArray[Any], input_shape: tuple[int, ...] | None, what: str) -> NDArray[Any]:
    """A view of inputs as (n, c, h, w), or (n, f)."""
    shape = values.shape
    if values.ndim == 3:
        values = values[:, None]
    elif values.ndim == 4:
        last_is_channel = shape[3] in _CHANNELS and shape[1] not in _CHANNELS
        if input_shape is not None and input_shape in (shape[1:], (shape[3], *shape[1:3])):
            last_is_channel = input_shape != shape[1:]
        values = np.moveaxis(values, 3, 1) if last_is_channel else values
    elif values.ndim != 2:
        raise DataError(f"{what}: shape {shape}: expected (n, h, w), (n, c, h, w), (n, h, w, c) or (n, f)")
    if values.size == 0:
        raise DataError(f"{what}: shape {shape}: expected at least one sample")
    return values


def as_classes(targets: NDArray[Any], what: str) -> NDArray[Any]:
    """Integer classes (n,) from classes or one-hot rows."""
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim == 2:
        starts = range(0, len(targets), _ROWS)
        return np.concatenate([_hot(targets[start : start + _ROWS], start, what) for start in starts])
    if targets.ndim != 1:
        raise DataError(f"{what}: targets of shape {targets.shape}: expected classes (n,), one-hot (n, k) or masks")
    if targets.dtype.kind == "f" and np.array_equal(targets, np.rint(targets)):
        with np.errstate(invalid="ignore"):
            return targets.astype(np.int64)
    return targets


def _hot(rows: NDArray[Any], first: int, what: str) -> NDArray[np.int64]:
    """The class of each one-hot row; ``first`` is the number of the first row."""
    if rows.dtype.kind not in "biuf":
        raise DataError(f"{what}: targets of type {rows.dtype}: expected classes (n,) or one-hot (n, k)")
    is_set = rows != 0
    counts = np.count_nonzero(is_set, axis=1)
    values = rows[is_set]
    wrong = np.flatnonzero(counts != 1)
    if not len(wrong) and (values == values[:1]).all() and bool(values[0] > 0):
        return np.asarray(is_set.argmax(axis=1))
    if (values == 1).all():
        raise DataError(
            f"{what}: row {first + wrong[0]} has {counts[wrong[0]]} ones: expected one-hot rows with a single 1. "
            "Rows of several labels are multilabel: give targets = multilabel, or leave it out"
        )
    raise DataError(
        f"{what}: targets of {rows.shape[1]} columns with values such as {values[values != 1].flat[0]}: expected "
        "one-hot rows, 0 with a single 1, or classes as integers (n,). Values to predict are floats (targets = "
        "regression)"
    )


def task_of(targets: NDArray[Any], key: str) -> Task:
    """What targets look like: see the module."""
    if "mask" in key:
        return "segmentation"
    if targets.ndim >= 3:
        spare = targets.ndim == 4 and 1 not in (targets.shape[1], targets.shape[3])
        return "regression" if targets.dtype.kind == "f" and (spare or not _is_whole(targets)) else "segmentation"
    if targets.ndim == 2 and targets.shape[1] > 1:
        return _task_of_rows(targets)
    return "regression" if targets.dtype.kind == "f" and not _is_whole(targets) else "classification"


def _task_of_rows(rows: NDArray[Any]) -> Task:
    """Classes if every row is one-hot, labels if all values are 0 or 1, values of floats to predict otherwise."""
    task: Task = "classification"
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        is_set = part != 0
        if not (part[is_set] == 1).all():
            one_value = (np.count_nonzero(is_set, axis=1) == 1).all() and len(np.unique(part[is_set])) == 1
            if rows.dtype.kind == "f" and not one_value:
                return "regression"
        elif (np.count_nonzero(is_set, axis=1) != 1).any():
            task = "multilabel"
    return task


def _is_whole(targets: NDArray[Any]) -> bool:
    """Whether all numbers are whole, looked at in parts."""
    starts = range(0, len(targets), 4096)
    return all(bool((targets[s : s + 4096] == np.rint(targets[s : s + 4096])).all()) for s in starts)


def as_labels(targets: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Rows (n, k) of zeros and ones as float32."""
    rows = targets[:, None] if targets.ndim == 1 else targets
    if rows.ndim != 2 or not ((rows == 0) | (rows == 1)).all():
        raise DataError(f"{what}: targets of shape {targets.shape}: expected labels (n, k), each 0 or 1")
    return rows.astype(np.float32)


def as_values(targets: NDArray[Any], images: NDArray[Any], what: str) -> NDArray[np.float32]:
    """Values (n, k), or (n, k, h, w) for every pixel, as float32; every one finite."""
    values = targets[:, None] if targets.ndim in (1, 3) else targets
    if values.ndim == 4 and values.shape[2:] != images.shape[2:] and values.shape[1:3] == images.shape[2:]:
        values = np.moveaxis(values, 3, 1)
    if values.dtype.kind not in "biuf" or values.ndim not in (2, 4):
        raise DataError(f"{what}: targets of shape {targets.shape} and type {targets.dtype}: expected numbers (n, k)")
    if values.ndim == 4 and values.shape[2:] != images.shape[2:]:
        raise DataError(f"{what}: values of shape {targets.shape[1:]} for images of shape {images.shape[1:]}")
    values = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    if len(bad):
        raise DataError(f"{what}: the target at index {bad[0]} is not finite ({len(bad)} of {len(values)} are not)")
    return values


def make_source(file: NpzFile, keys: tuple[str, str], request: Request, like: Source | None = None) -> Source:
    """The source made of two arrays of a file, and of a third if it weighs samples; ``like`` is the training part."""
    input_key, target_key = keys
    images = with_channels_first(file.array(input_key), request.input_shape, f"{file.path}[{input_key}]")
    targets, what = file.array(target_key), f"{file.path}[{target_key}]"
    if len(images) != len(targets):
        raise DataError(f"{what}: {len(targets)} targets for {len(images)} inputs: expected as many")
    task = like.task if like is not None else request.task or task_of(targets, target_key)
    weights = _weights(file, target_key, len(images))
    if task == "segmentation":
        return _masked(images, targets, request, what, weights)
    if task == "classification":
        classes = as_classes(targets, what)
        known = (None if like is None else like.num_classes) or request.num_classes
        known = known or _count_classes(targets, classes, what)
        return ArraySource(images, check_labels(classes, known, what), known, weights=weights)
    values = as_labels(targets, what) if task == "multilabel" else as_values(targets, images, what)
    if like is not None and values.shape[1] != like.num_classes:
        raise DataError(f"{what}: {values.shape[1]} columns, but the training part has {like.num_classes}")
    return ArraySource(images, values, values.shape[1], task, weights)


def _masked(
    images: NDArray[Any], targets: NDArray[Any], request: Request, what: str, weights: NDArray[np.float32] | None
) -> Source:
    if weights is not None:
        raise DataError(f"{what}: weights of samples are not known for masks: leave them out, or give class_weights")
    masks = with_channels_first(targets, (1, *images.shape[2:]), what)
    if masks.shape[1:] != (1, *images.shape[2:]):
        raise DataError(f"{what}: masks of shape {targets.shape[1:]} for images of shape {images.shape[1:]}")
    return MaskedArraySource(images, masks, MaskMeaning.of(request.num_classes), what)


def _weights(file: NpzFile, target_key: str, num_samples: int) -> NDArray[np.float32] | None:
    """The weights that stand beside these targets, if the file has any: ``w_train`` beside ``y_train``."""
    part = next((ends for ends in _SUFFIXES.values() if any(end in target_key.split("_") for end in ends)), None)
    ends = part or ()
    wanted = [key for name in _WEIGHT_KEYS for end in ends for key in (f"{name}_{end}", f"{end}_{name}")]
    key = next((key for key in wanted or _WEIGHT_KEYS if key in file.keys), None)
    if key is None:
        return None
    weights, what = file.array(key), f"{file.path}[{key}]"
    if weights.shape != (num_samples,) or weights.dtype.kind not in "biuf":
        raise DataError(f"{what}: shape {weights.shape}, type {weights.dtype}: expected numbers ({num_samples},)")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise DataError(f"{what}: expected finite numbers of at least 0")
    return weights.astype(np.float32)


def _remarks(source: Source, dtype: np.dtype[Any], request: Request) -> tuple[str, ...]:
    """What the targets were taken for, where it was not said and they could be something else."""
    if (
        request.task is not None
        or source.task == "segmentation"
        or (source.task == "classification" and dtype.kind != "f")
    ):
        return ()
    what = {
        "classification": f"{source.num_classes} classes, since all are whole numbers",
        "multilabel": f"{source.num_classes} labels that do not exclude each other",
        "regression": f"{source.num_classes} value{'s' * (source.num_classes != 1)} to predict",
    }[source.task]
    return (f"the targets are taken for {what} ({source.task}): give task if they are something else",)


def _count_classes(targets: NDArray[Any], classes: NDArray[Any], what: str) -> int:
    if targets.ndim == 2 and targets.shape[1] > 1:
        return int(targets.shape[1])
    if classes.dtype.kind not in "iu":
        raise DataError(f"{what}: targets of type {classes.dtype}: expected integer classes")
    highest = int(classes.max())
    if highest >= 1 << 20:
        raise DataError(f"{what}: label {highest}: more than a million classes; give num_classes if that is meant")
    return max(highest, 0) + 1


def load_parts(request: Request) -> Parts:
    """Training and test part, from one npz file or two."""
    train_path, test_path = request.folders()
    file = NpzFile(train_path)
    keys = file.find("train") or file.find(None)
    if keys is None:
        raise DataError(
            f"{train_path} holds {', '.join(file.keys)[:200] or 'no arrays'}: expected keys such as images and labels, "
            "x and y, images and masks, or x_train, y_train, x_test and y_test"
        )
    train = make_source(file, keys, request)
    test = _other(file if test_path == train_path else NpzFile(test_path), "test", test_path, request, train)
    validation = _other(file, "validation", train_path, request, train)
    is_bytes = file.header(keys[0])[0] == np.uint8
    constants = BYTES if is_bytes else Normalization()
    return Parts(
        train, test, validation, normalization=constants, remarks=_remarks(train, file.header(keys[1])[0], request)
    )


def _other(file: NpzFile, part: Part, path: Path, request: Request, train: Source) -> Source | None:
    keys = file.find(part)
    if keys is None and part == "test" and request.test_path == path and path != request.train_path:
        keys = file.find(None)
        if keys is None:
            raise DataError(f"no test data in {path}: expected keys such as x and y, or x_test and y_test")
    return make_source(file, keys, request, train) if keys else None

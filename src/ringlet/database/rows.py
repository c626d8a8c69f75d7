"""A row's picture becomes a row's result: six columns, the same in every database.

Files that rows may name lie below one allowed directory, whatever links and dots a path holds.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, TypeAlias

from numpy.typing import NDArray

from ringlet.errors import DataError, UsageError
from ringlet.inference.predictor import Named, Prediction, Predictor
from ringlet.inference.scoring import mask_image

COLUMNS = ("class", "label", "probability", "mask", "share", "error")
Row: TypeAlias = dict[str, Any]
"""A value or None for each of :data:`COLUMNS`; a picture that is null has no row at all, but None."""

_NAME = "image"
_MAX_ERROR = 500


def bytes_item(image: bytes | None) -> Named | None:
    """A picture that came as bytes."""
    return None if image is None else Named(_NAME, image)


def arrow_items(images: Any) -> list[Named | None]:
    """Pictures in an Arrow array, each of which is copied when it is decoded."""
    present = images.is_valid().to_pylist()
    return [Named(_NAME, partial(_copied, images, index)) if here else None for index, here in enumerate(present)]


def file_item(path: str | None, directory: AllowedDirectory) -> Named | None:
    """A picture in a file, which is read when it is decoded; what is wrong with the path is the row's error."""
    return None if path is None else Named(path, partial(directory.read, path))


def read_item(item: Named | None) -> Named | None:
    """The same with its bytes, which tell whether it is another picture."""
    if item is None or not callable(item.picture):
        return item
    try:
        return Named(item.name, item.picture())
    except DataError as error:
        return Named(item.name, b"", problem=str(error))


def predict_rows(predictor: Predictor, items: Sequence[Named | None]) -> list[Row | None]:
    """One row for every item, in order; null in, null out, and no picture can stop the others."""
    rows = iter(_rows(predictor, [item for item in items if item is not None]))
    return [None if item is None else next(rows) for item in items]


def _copied(images: Any, index: int) -> bytes:
    content: bytes = images[index].as_py()
    return content


def _rows(predictor: Predictor, items: list[Named]) -> list[Row]:
    """All at once; if that fails in a way that no one foresaw, one by one."""
    make_row = partial(_row, num_classes=predictor.description.num_classes)
    try:
        return predictor.map(make_row, items) if items else []
    except Exception as error:  # a query must not die of a row
        if len(items) == 1:
            return [make_row(Prediction(items[0].name, error=f"{items[0].name}: {type(error).__name__}: {error}"))]
        return [row for item in items for row in _rows(predictor, [item])]


def _row(prediction: Prediction, *, num_classes: int) -> Row:
    mask = None if prediction.mask is None else encode_mask(prediction.mask, num_classes)
    values = (prediction.class_index, prediction.label, prediction.probability, mask, prediction.share)
    return dict(zip(COLUMNS, (*values, plain_text(prediction.error)), strict=True))


def plain_text(text: str | None) -> str | None:
    """A message that every database can store: no control characters, not too long."""
    if text is None:
        return None
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= _MAX_ERROR else f"{shown[: _MAX_ERROR - 1]}…"


def encode_mask(mask: NDArray[Any], num_classes: int) -> bytes:
    """A mask (H, W) as the PNG file that ``ringlet predict`` writes."""
    stream = io.BytesIO()
    mask_image(mask, num_classes).save(stream, format="PNG", compress_level=1)
    return stream.getvalue()


# -- files ------------------------------------------------------------------------------------------------------------
MAX_FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class AllowedDirectory:
    """A directory below which files may be read; relative paths begin there."""

    path: str

    def __post_init__(self) -> None:
        """Refuse what would depend on where a process happens to be."""
        if not self.path.startswith("/") or any(ord(character) < 32 for character in self.path):
            raise UsageError(f"'{self.path}' cannot be the allowed directory: expected a path that begins with '/'")

    def read(self, path: str) -> bytes:
        """The content of a regular file, or a DataError; nothing is told about what lies outside.

        The path is resolved first. Then it is opened step by step from the directory, following no link, so that
        no one can put one there in between.
        """
        if "\0" in path:
            raise DataError("the path holds a zero byte")
        root = os.path.realpath(self.path)
        target = os.path.realpath(PurePath(root, path))
        parts = PurePath(target).parts[len(PurePath(root).parts) :]
        if not parts or os.path.commonpath([root, target]) != root:
            raise DataError(f"{path}: outside of the allowed directory")
        try:
            return _read(root, parts, path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _read(root: str, parts: tuple[str, ...], path: str) -> bytes:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path}: not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: {status.st_size:,} bytes: too large for a picture")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(status.st_size)  # as much memory is taken as is asked for here
    finally:
        os.close(handle)

"""A row's picture becomes a row's result: six columns, the same in every database."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from ringlet.database.files import AllowedDirectory
from ringlet.errors import DataError
from ringlet.inference.pictures import colour
from ringlet.inference.prediction import Prediction
from ringlet.inference.predictor import Named, Predictor

COLUMNS = ("class", "label", "probability", "mask", "share", "error")
Row: TypeAlias = dict[str, Any]
"""A value or None for each of :data:`COLUMNS`; a picture that is null has no row at all, but None."""

_NAME = "image"
_MAX_ERROR = 500
_WHITE = 255


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
    """All at once; if that fails in a way that nobody foresaw, one by one."""
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
    if num_classes <= 2:
        image = PIL.Image.fromarray((mask != 0).astype(np.uint8) * _WHITE)
    else:
        image = PIL.Image.fromarray(mask)
        if mask.dtype == np.uint8:
            image.putpalette([value for index in range(256) for value in colour(index)])
    stream = io.BytesIO()
    image.save(stream, format="PNG", compress_level=1)
    return stream.getvalue()

"""A sheet of samples as one picture: a row per class, or images beside their masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.source import Source, labels_of
from ringlet.errors import DataError, FileWriteError

if TYPE_CHECKING:
    from PIL.Image import Image

CELL = 96
"""Pixels of one sample."""
_COLUMNS, _ROWS = 8, 12
_CAPTION = 16
_GAP = 4
_TINTS = ((230, 60, 60), (60, 140, 240), (60, 190, 90), (240, 180, 40), (170, 90, 220), (60, 200, 200))


@dataclass(frozen=True)
class Row:
    """Samples that stand in a row."""

    caption: str
    indices: NDArray[np.int64]


def write_sheet(source: Source, class_names: tuple[str, ...], path: Path) -> None:
    """Draw samples of a source into a picture file; which ones is always the same."""
    import PIL.Image
    import PIL.ImageDraw

    if len(source.input_shape) != 3:
        raise DataError(f"samples of shape {source.input_shape} are no pictures: leave --sheet out")
    rows = _rows(source, class_names)
    height = len(rows) * (CELL + _CAPTION + _GAP) + _GAP
    sheet = PIL.Image.new("RGB", (_COLUMNS * (CELL + _GAP) + _GAP, height), "white")
    draw = PIL.ImageDraw.Draw(sheet)
    for number, row in enumerate(rows):
        top = _GAP + number * (CELL + _CAPTION + _GAP)
        draw.text((_GAP, top), row.caption, fill="black")
        inputs, targets = source.read(row.indices)
        for place in range(len(row.indices)):
            mask = targets[place] if source.task == "segmentation" else None
            sheet.paste(_cell(inputs[place], mask), (_GAP + place * (CELL + _GAP), top + _CAPTION))
    try:
        sheet.save(path)
    except (OSError, ValueError) as error:
        raise FileWriteError(f"cannot write the sheet to '{path}': {error}. Give a file such as sheet.png") from error


def _rows(source: Source, class_names: tuple[str, ...]) -> list[Row]:
    labels = labels_of(source)
    if labels is None:
        picks = np.unique(np.linspace(0, len(source) - 1, min(len(source), _COLUMNS * _ROWS // 2)).astype(np.int64))
        groups = [picks[start : start + _COLUMNS] for start in range(0, len(picks), _COLUMNS)]
        return [Row(f"samples {group[0]:,} …", group) for group in groups]
    present = np.unique(labels)
    chosen = present[np.unique(np.linspace(0, len(present) - 1, min(len(present), _ROWS)).astype(np.int64))]
    rows = []
    for label in chosen.tolist():
        own = np.flatnonzero(labels == label)
        picks = own[np.unique(np.linspace(0, len(own) - 1, min(len(own), _COLUMNS)).astype(np.int64))]
        name = class_names[label] if label < len(class_names) else str(label)
        rows.append(Row(f"{name} ({len(own):,})", picks))
    return rows


def _cell(values: NDArray[Any], mask: NDArray[Any] | None) -> Image:
    """One sample within a square, its mask tinted."""
    import PIL.Image

    pixels = _colours(values)
    if mask is not None:
        classes = (mask[0] if mask.ndim == 3 else mask).astype(np.int64)
        for index in np.unique(classes[classes > 0]).tolist():
            tint = np.array(_TINTS[(index - 1) % len(_TINTS)])
            where = classes == index
            pixels[where] = (pixels[where] * 0.5 + tint * 0.5).astype(np.uint8)
    picture = PIL.Image.fromarray(pixels)
    scale = CELL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    cell = PIL.Image.new("RGB", (CELL, CELL), (245, 245, 245))
    resized = picture.resize(size, resample=0 if scale > 1 else 2)
    cell.paste(resized, ((CELL - size[0]) // 2, (CELL - size[1]) // 2))
    return cell


def _colours(values: NDArray[Any]) -> NDArray[np.uint8]:
    """(H, W, 3) of any input; numbers that are no bytes are spread from black to white, and so are dark bytes."""
    planes = values[:3] if len(values) >= 3 else np.repeat(values[:1], 3, axis=0)
    if planes.dtype != np.uint8 or planes.max(initial=0) <= 16:
        low, high = float(planes.min()), float(planes.max())
        planes = ((planes.astype(np.float32) - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(planes, 0, 2))

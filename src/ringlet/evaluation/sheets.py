"""Contact sheets: image, truth and prediction of masks side by side, or images of classes with what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.evaluation.classes import mean_overlaps
from ringlet.evaluation.panels import SMALLEST, Panel, image_panel, mask_panel

if TYPE_CHECKING:
    from PIL.Image import Image

GAP, LINE = 6, 16
INK, PAPER = (30, 30, 30), (255, 255, 255)
NUM_COLUMNS = 4
_WHITE = 255
_TEXT_WIDTH = 6
"""About the pixels of a letter."""


@dataclass(frozen=True)
class Sample:
    """A sample as the data set has it: ``image (C, H, W)``, and ``truth (H, W)`` of 0 and 1 or of classes."""

    index: int
    image: NDArray[Any]
    truth: NDArray[Any]


def draw_sheet(samples: Sequence[Sample], masks: Sequence[NDArray[Any]], num_classes: int, title: str) -> Image:
    """All samples beneath each other; ``masks`` are probabilities ``(H, W)``, or classes if there are several."""
    import PIL.Image
    import PIL.ImageDraw

    rows = [
        (image_panel(sample.image), mask_panel(sample.truth, num_classes), mask_panel(mask, num_classes))
        for sample, mask in zip(samples, masks, strict=True)
    ]
    height, width = rows[0][0].shape[:2]
    size = (3 * (width + GAP) + GAP, LINE + len(rows) * (height + LINE) + GAP)
    sheet = PIL.Image.new("RGB", size, PAPER)
    pen = PIL.ImageDraw.Draw(sheet)
    for column, heading in enumerate((f"image, {title}", "truth", "prediction")):
        pen.text((GAP + column * (width + GAP), 2), heading, fill=INK)
    for row, (sample, mask, panels) in enumerate(zip(samples, masks, rows, strict=True)):
        top = LINE + row * (height + LINE)
        for column, panel in enumerate(panels):
            sheet.paste(PIL.Image.fromarray(panel), (GAP + column * (width + GAP), top))
        overlap = overlap_of(mask, sample.truth, num_classes)
        pen.text((GAP, top + height + 2), f"sample {sample.index}", fill=INK)
        pen.text((GAP + 2 * (width + GAP), top + height + 2), f"IoU {overlap:.3f}", fill=INK)
    return sheet


def draw_tiles(images: Sequence[NDArray[Any]], captions: Sequence[tuple[str, ...]], title: str) -> Image:
    """Images ``(C, H, W)`` of one shape in rows of four, each with its lines of text below it."""
    import PIL.Image
    import PIL.ImageDraw

    panels: list[Panel] = [image_panel(image) for image in brightened(images)]
    height, width = panels[0].shape[:2]
    wide, lines = max(width, SMALLEST) + GAP, max(map(len, captions))
    tall = height + lines * LINE + GAP
    num_columns = min(NUM_COLUMNS, len(panels))
    sheet = PIL.Image.new("RGB", (num_columns * wide + GAP, LINE + -(-len(panels) // num_columns) * tall + GAP), PAPER)
    pen = PIL.ImageDraw.Draw(sheet)
    pen.text((GAP, 2), shortened(title, num_columns * wide), fill=INK)
    for place, (panel, caption) in enumerate(zip(panels, captions, strict=True)):
        left, top = GAP + place % num_columns * wide, LINE + GAP + place // num_columns * tall
        sheet.paste(PIL.Image.fromarray(panel), (left, top))
        for line, text in enumerate(caption):
            pen.text((left, top + height + 2 + line * LINE), shortened(text, wide), fill=INK)
    return sheet


def brightened(images: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Bytes that use less than half of their range in all images, such as digits of 0 to 16, spread over all of it."""
    most = max(int(image.max(initial=0)) if image.dtype == np.uint8 else _WHITE for image in images)
    if most == 0 or 2 * most >= _WHITE:
        return list(images)
    return [(image.astype(np.float32) * (_WHITE / most)).astype(np.uint8) for image in images]


def overlap_of(mask: NDArray[Any], truth: NDArray[Any], num_classes: int) -> float:
    """Intersection over union of one sample, as the metric ``iou`` has it."""
    if num_classes == 1:
        sides = ((mask[None] >= 0.5).astype(np.int64), (truth[None] >= 0.5).astype(np.int64))
        return float(mean_overlaps(sides[1], sides[0], 2, first=1)[0])
    return float(mean_overlaps(truth[None].astype(np.int64), mask[None].astype(np.int64), num_classes, first=0)[0])


def shortened(text: str, width: int) -> str:
    """A text that fits ``width`` pixels, of letters that the built-in font has."""
    limit = max(width // _TEXT_WIDTH, 4)
    known = text.encode("latin-1", "replace").decode("latin-1")
    return known if len(known) <= limit else f"{known[: limit - 2]}.."

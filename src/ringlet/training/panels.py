"""How a picture of samples looks: one row each, with image, truth and prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringlet.training.metrics import iou

if TYPE_CHECKING:
    from PIL.Image import Image

SMALLEST, LARGEST = 128, 256
"""Panels are enlarged, or pixels left out, until their longer side lies between these."""
GAP, LINE = 6, 16
INK, PAPER = (30, 30, 30), (255, 255, 255)
COLOURS = np.array(
    [
        (0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
        (204, 121, 167), (255, 255, 255),
    ],
    np.uint8,
)  # fmt: skip
"""Classes: black for the background, then colours that differ for everybody (Okabe and Ito, 2008)."""

Panel = NDArray[np.uint8]


@dataclass(frozen=True)
class Sample:
    """A sample as the data set has it: ``image (C, H, W)``, and ``truth (H, W)`` of 0 and 1 or of classes."""

    index: int
    image: NDArray[Any]
    truth: NDArray[Any]


def draw_sheet(samples: list[Sample], masks: list[NDArray[Any]], num_classes: int, title: str) -> Image:
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


def image_panel(image: NDArray[Any]) -> Panel:
    """An image ``(C, H, W)`` as colours: three channels as they are, without a fourth; otherwise the first as grey.

    Floating values are stretched from their smallest to their largest one.
    """
    planes = image[:3] if len(image) in (3, 4) else np.repeat(image[:1], 3, axis=0)
    if planes.dtype != np.uint8:
        low, high = float(planes.min()), float(planes.max())
        planes = np.clip((planes - low) * (255 / max(high - low, 1e-30)), 0, 255).astype(np.uint8)
    return fitted(np.moveaxis(planes, 0, 2))


def mask_panel(mask: NDArray[Any], num_classes: int) -> Panel:
    """Probabilities as shades of grey, classes in their colours."""
    if num_classes > 1:
        return fitted(COLOURS[mask.astype(np.int64) % len(COLOURS)])
    grey = np.rint(np.clip(np.nan_to_num(mask), 0, 1) * 255).astype(np.uint8)
    return fitted(np.repeat(grey[:, :, None], 3, axis=2))


def fitted(panel: Panel) -> Panel:
    """A panel of a size that can be looked at: whole pixels are repeated or left out."""
    longer = max(panel.shape[:2])
    times, step = -(-SMALLEST // longer), -(-longer // LARGEST)
    return np.ascontiguousarray(panel[::step, ::step].repeat(times, axis=0).repeat(times, axis=1))


def overlap_of(mask: NDArray[Any], truth: NDArray[Any], num_classes: int) -> float:
    """Intersection over union of one sample, as the metric has it."""
    if num_classes == 1:
        return iou(mask[None, None], truth[None, None])[0]
    channels = np.arange(num_classes).reshape(-1, 1, 1)
    return iou((mask == channels)[None].astype(np.float32), truth.astype(np.int64)[None])[0]

"""Samples as small pictures: images, masks in the colours of their classes, all of a size that can be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.palette import painted

SMALLEST, LARGEST = 128, 256
"""Panels are enlarged, or pixels left out, until their longer side lies between these."""

Panel = NDArray[np.uint8]


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
        return fitted(painted(mask.astype(np.int64)))
    grey = np.rint(np.clip(np.nan_to_num(mask), 0, 1) * 255).astype(np.uint8)
    return fitted(np.repeat(grey[:, :, None], 3, axis=2))


def fitted(panel: Panel) -> Panel:
    """A panel of a size that can be looked at: whole pixels are repeated or left out."""
    longer = max(panel.shape[:2])
    times, step = -(-SMALLEST // longer), -(-longer // LARGEST)
    return np.ascontiguousarray(panel[::step, ::step].repeat(times, axis=0).repeat(times, axis=1))

"""Changes of what pixels show, where they are; masks stay."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import option
from ringlet.data.augmentation.base import Draw, Images, Transform, restored
from ringlet.errors import ConfigError

_JITTER_CHANCE, _CONTRAST, _LIGHT = range(11, 14)  # and one more for the light of every further channel
_COLOUR_CHANCE, _HUE, _SATURATION, _BLUR_CHANCE, _SIGMA = range(520, 525)
_ERASE_CHANCE, _AREA, _ASPECT, _TOP, _LEFT = range(525, 530)
_LUMA = (0.30, 0.59, 0.11)
"""Shares of red, green and blue in the brightness, and of (red - brightness) and (blue - brightness) in I and Q."""
_CHROMA = ((0.74, -0.27), (0.48, 0.41))
_SMALLEST_SIGMA, _SMALLEST_AREA, _LARGEST_RATIO = 0.1, 0.02, 3.3


@final
class Jitter(Transform):
    """Change contrast and brightness: contrast by a factor of up to ``1 ± strength``, and the brightness of each
    channel, for itself, by up to ``strength`` times its spread. Masks stay.
    """

    name: ClassVar[str] = "jitter"
    order: ClassVar[int] = 10
    strength: float = option(0.3, "share by which contrast and brightness change at most", gt=0, le=1)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images."""
        inputs = images[0]
        chosen = draw.chosen(_JITTER_CHANCE, self.probability)
        kinds = (_CONTRAST, *(_LIGHT + channel for channel in range(inputs.shape[1])))
        amounts = np.stack([(2.0 * draw.uniform(kind) - 1.0)[chosen] for kind in kinds], axis=1)
        result = inputs.copy()
        for sample, amount in zip(chosen.tolist(), (amounts * self.strength).astype(np.float32), strict=True):
            values = inputs[sample].astype(np.float32)
            mean, spread = (f(values, axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
            changed = mean + (values - mean) * (1 + amount[0]) + spread * amount[1:, None, None]
            result[sample] = restored(changed, inputs)
        return [result, *images[1:]]


@final
class Colour(Transform):
    """Turn the hue and change the saturation of colours; brightness stays. In the space YIQ, of which I and Q turn."""

    name: ClassVar[str] = "colour"
    order: ClassVar[int] = 12
    presets: ClassVar[dict[str, dict[str, Any]]] = {"color": {}}
    hue: float = option(20.0, "degrees by which the hue turns at most, either way", unit="degrees", ge=0, le=180)
    saturation: float = option(0.3, "share by which the saturation changes at most", ge=0, le=1)

    def check_channels(self, channels: int) -> None:
        """Refuse images that have no colours."""
        if channels != 3:
            raise ConfigError(
                f"augmentation colour: images have {channels} channels, expected red, green and blue. "
                "For others use jitter, which changes contrast and brightness"
            )

    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images."""
        inputs = images[0]
        angles = np.deg2rad(draw.between(_HUE, -self.hue, self.hue))
        factors = draw.between(_SATURATION, 1 - self.saturation, 1 + self.saturation)
        result = inputs.copy()
        for sample in draw.chosen(_COLOUR_CHANCE, self.probability).tolist():
            matrix = colour_matrix(float(angles[sample]), float(factors[sample]))
            values = inputs[sample].astype(np.float32).reshape(3, -1)
            result[sample] = restored((matrix @ values).reshape(inputs.shape[1:]), inputs)
        return [result, *images[1:]]


def colour_matrix(angle: float, factor: float) -> NDArray[np.float32]:
    """The matrix on (red, green, blue) that turns I and Q by ``angle`` in radians and multiplies them by ``factor``."""
    luma = np.array(_LUMA)
    differences = np.stack([np.array([1.0, 0, 0]) - luma, np.array([0, 0, 1.0]) - luma])  # red and blue without Y
    to_yiq = np.concatenate([luma[None], np.array(_CHROMA) @ differences])
    turn = np.eye(3)
    turn[1:, 1:] = factor * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(np.linalg.inv(to_yiq) @ turn @ to_yiq, np.float32)


@final
class Blur(Transform):
    """Blur by a Gaussian, edges mirrored."""

    name: ClassVar[str] = "blur"
    order: ClassVar[int] = 15
    sigma: float = option(1.0, "largest standard deviation of the Gaussian", unit="pixels", gt=0, le=50)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The blurred images."""
        inputs = images[0]
        sigmas = draw.between(_SIGMA, min(_SMALLEST_SIGMA, self.sigma), self.sigma)
        result = inputs.copy()
        for sample in draw.chosen(_BLUR_CHANCE, self.probability).tolist():
            values = inputs[sample].astype(np.float32)
            for axis in (1, 2):
                values = _blurred(values, float(sigmas[sample]), axis)
            result[sample] = restored(values, inputs)
        return [result, *images[1:]]


def _blurred(values: NDArray[np.float32], sigma: float, axis: int) -> NDArray[np.float32]:
    """One axis of a Gaussian blur; the kernel ends at three standard deviations, or at the size of the image."""
    size = values.shape[axis]
    radius = min(int(np.ceil(3 * sigma)), size - 1)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    padding = [(radius, radius) if place == axis else (0, 0) for place in range(values.ndim)]
    padded = np.pad(values, padding, mode="reflect")
    result = np.zeros_like(values)
    for place, weight in enumerate(weights):
        result += weight * padded.take(range(place, place + size), axis=axis)
    return result


@final
class Erase(Transform):
    """Hide a random rectangle under the mean of the image (Zhong et al., 2020, and cutout); its mask stays."""

    name: ClassVar[str] = "erase"
    order: ClassVar[int] = 60
    area: float = option(0.2, "largest share of the image that is hidden", gt=0, le=1)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The images with a hole."""
        inputs = images[0]
        chosen = draw.chosen(_ERASE_CHANCE, self.probability)
        height, width = inputs.shape[2:]
        areas = draw.between(_AREA, min(_SMALLEST_AREA, self.area), self.area) * height * width
        ratios = np.exp(draw.between(_ASPECT, -np.log(_LARGEST_RATIO), np.log(_LARGEST_RATIO)))
        heights = np.clip(np.rint(np.sqrt(areas * ratios)), 1, height).astype(np.int64)
        widths = np.clip(np.rint(np.sqrt(areas / ratios)), 1, width).astype(np.int64)
        tops = (draw.uniform(_TOP) * (height - heights + 1)).astype(np.int64)
        lefts = (draw.uniform(_LEFT) * (width - widths + 1)).astype(np.int64)
        boxes = np.stack([tops, lefts, tops + heights, lefts + widths], axis=1)
        for sample in chosen.tolist():
            top, left, bottom, right = boxes[sample].tolist()
            means = inputs[sample].mean(axis=(1, 2), dtype=np.float32)[:, None, None]
            inputs[sample, :, top:bottom, left:right] = restored(means, inputs)
        return images

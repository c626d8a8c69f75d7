"""U-Net (Ronneberger et al. 2015) for segmentation: a path down, a path up, and skips between them.

On 512x512 images it has seven levels with 8, 16, … 512 filters and 1024 at the bottom. Any image size serves: where a
height or width is odd, the way up adds the row or column that halving dropped.
"""

from __future__ import annotations

from typing import ClassVar

from ringlet.component import option
from ringlet.errors import SpecError
from ringlet.models.builder import (
    Tensor,
    build,
    concat,
    conv2d,
    conv2d_transpose,
    image_input,
    max_pool2d,
    sigmoid,
    softmax,
)
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import NETWORKS, Member, NetworkOptions, conv_norm_relu
from ringlet.operations.attributes import MAX_EXTENT, Shape

MAX_LEVELS = 7
MIN_BOTTOM = 4


def double_conv(x: Tensor, width: int, momentum: float) -> Tensor:
    """Two 3x3 convolutions with batch norm and ReLU."""
    for _ in range(2):
        x = conv_norm_relu(x, width, 3, momentum=momentum)
    return x


def enlarge(x: Tensor, size: Shape, width: int) -> Tensor:
    """A transposed convolution to ``size`` (height, width): twice that of ``x``, or one more where that was odd."""
    odd = (size[0] % 2, size[1] % 2)
    return conv2d_transpose(x, width, kernel=2, stride=2, output_padding=odd, initializer="he_normal")


def fitting_levels(input_shape: Shape) -> int:
    """The most levels, up to seven, that leave at least 4x4 pixels at the bottom; at least one."""
    fitting = [levels for levels in range(1, MAX_LEVELS + 1) if min(input_shape[1:]) >> levels >= MIN_BOTTOM]
    return max(fitting, default=1)


def unet(name: str, input_shape: Shape, num_classes: int, *, levels: int, width: int, momentum: float) -> ModelSpec:
    """``levels`` times down and up (0: as many as fit), from ``width`` filters at the top to ``width << levels``.

    ``momentum`` is the share that batch normalisation keeps of its running statistics at every step. What the network
    learns does not depend on it, but what it predicts does: 0.99 describes the last hundreds of steps, too slow for the
    first epochs of a small data set.
    """
    levels = levels or fitting_levels(input_shape)
    if levels > 16 or min(input_shape[1:]) >> levels < 1:
        raise SpecError(
            f"unet with {levels} level(s) halves images {levels} time(s), which leaves nothing of "
            f"{input_shape[1]}x{input_shape[2]}; use fewer levels or larger images"
        )
    x = image_input(input_shape)
    skips: list[Tensor] = []
    for level in range(levels):
        skips.append(double_conv(x, width << level, momentum))
        x = max_pool2d(skips[-1], 2)
    x = double_conv(x, width << levels, momentum)
    for level, skip in reversed(list(enumerate(skips))):
        x = enlarge(x, skip.shape[1:], width << level)
        x = double_conv(concat(skip, x), width << level, momentum)
    x = conv2d(x, num_classes, kernel=1)
    return build(name, sigmoid(x) if num_classes == 1 else softmax(x))


class UNetOptions(NetworkOptions):
    """Of the U-Net."""

    family: ClassVar[str] = "unet"
    levels: int = option(0, "times down and up; 0: as many as fit, at most 7", ge=0, le=16)
    width: int = option(8, "filters at the top; they double with every level", ge=1, le=MAX_EXTENT)
    momentum: float = option(
        0.99,
        "share of the running statistics that batch norm keeps; unless given, runs with short epochs take less",
        ge=0,
        lt=1,
    )


MEMBERS = (
    NETWORKS.register(
        Member(
            "unet",
            unet,
            "U-Net for masks: sigmoid for one class, softmax for several",
            (3, 512, 512),
            1,
            min_classes=1,
            options=UNetOptions(),
        )
    ),
)

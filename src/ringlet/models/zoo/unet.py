"""U-Net (Ronneberger et al. 2015) for segmentation: a path down, a path up, and skips between them.

On 512x512 images it has seven levels with 8, 16, … 512 filters and 1024 at the bottom.
"""

from __future__ import annotations

from ringlet.errors import SpecError
from ringlet.models.attributes import Shape
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
from ringlet.models.zoo.member import Member, conv_norm_relu

MOMENTUM = 0.99
MAX_LEVELS = 7
MIN_BOTTOM = 4


def double_conv(x: Tensor, width: int) -> Tensor:
    """Two 3x3 convolutions with batch norm and ReLU."""
    for _ in range(2):
        x = conv_norm_relu(x, width, 3, momentum=MOMENTUM)
    return x


def fitting_levels(input_shape: Shape) -> int:
    """The most levels, up to seven, that halve the image evenly and leave at least 4x4 at the bottom; at least one."""
    fitting = [
        levels
        for levels in range(1, MAX_LEVELS + 1)
        if all(extent % (1 << levels) == 0 and extent >> levels >= MIN_BOTTOM for extent in input_shape[1:])
    ]
    return max(fitting, default=1)


def unet(name: str, input_shape: Shape, num_classes: int, *, levels: int, width: int) -> ModelSpec:
    """``levels`` times down and up (0: as many as fit), from ``width`` filters at the top to ``width << levels``."""
    levels = levels or fitting_levels(input_shape)
    if levels > 16 or any(extent % (1 << levels) for extent in input_shape[1:]):
        raise SpecError(
            f"unet with {levels} level(s) needs images whose height and width are multiples of 2^{levels}, "
            f"got {input_shape[1]}x{input_shape[2]}; use fewer levels or another image size"
        )
    x = image_input(input_shape)
    skips = []
    for level in range(levels):
        skips.append(double_conv(x, width << level))
        x = max_pool2d(skips[-1], 2)
    x = double_conv(x, width << levels)
    for level in reversed(range(levels)):
        x = conv2d_transpose(x, width << level, kernel=2, stride=2, initializer="he_normal")
        x = double_conv(concat(skips[level], x), width << level)
    x = conv2d(x, num_classes, kernel=1)
    return build(name, sigmoid(x) if num_classes == 1 else softmax(x))


MEMBERS = (
    Member(
        "unet", unet, "U-Net for masks: sigmoid for one class, softmax for several", (3, 512, 512), 1, min_classes=1,
        options={"levels": 0, "width": 8},
    ),
)  # fmt: skip

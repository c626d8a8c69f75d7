"""MobileNet v1 (Howard et al. 2017): each convolution split into one per channel and a 1x1 over channels."""

from __future__ import annotations

from ringlet.errors import ConfigError, show
from ringlet.models.builder import build, global_avg_pool2d, image_input
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import Member, classify, conv_norm_relu, is_small
from ringlet.operations.attributes import Shape

LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
MAX_WIDTH = 16.0


def mobilenetv1(name: str, input_shape: Shape, num_classes: int, *, width: float) -> ModelSpec:
    """``width`` scales every number of filters; small images keep their size in the first layer."""
    if not 0 < width <= MAX_WIDTH:
        raise ConfigError(f"width must be above 0 and at most {MAX_WIDTH:g}, got {show(width)}")
    x = image_input(input_shape)
    x = conv_norm_relu(x, max(1, int(32 * width)), 3, stride=1 if is_small(input_shape) else 2)
    for filters, stride in LAYERS:
        x = conv_norm_relu(x, x.shape[0], 3, stride=stride, groups=x.shape[0])
        x = conv_norm_relu(x, max(1, int(filters * width)), 1)
    return build(name, classify(global_avg_pool2d(x), num_classes))


MEMBERS = (Member("mobilenetv1", mobilenetv1, "depthwise separable convolutions", options={"width": 1.0}),)

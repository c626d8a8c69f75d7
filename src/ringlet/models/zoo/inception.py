"""GoogLeNet (Szegedy et al. 2015) and Inception v3 (Szegedy et al. 2016), both with batch norm and without auxiliary
heads.

GoogLeNet follows the widely used batch-norm form whose third branch has 3x3 windows (6,624,904 parameters); the
paper's 5x5 windows are ``branch_kernel=5``.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from ringlet.component import option
from ringlet.models.builder import (
    Tensor,
    avg_pool2d,
    build,
    concat,
    dropout,
    global_avg_pool2d,
    image_input,
    max_pool2d,
)
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import (
    FORM,
    NETWORKS,
    RATE,
    Form,
    Member,
    NetworkOptions,
    classify,
    conv_norm_relu,
    pick_form,
)
from ringlet.operations.attributes import MAX_EXTENT, Shape

conv = partial(conv_norm_relu, epsilon=1e-3)
GOOGLENET_STAGES = (
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
"""Per block: 1x1; reduction and 3x3; reduction and third branch; projection after the pool."""


def googlenet(name: str, input_shape: Shape, num_classes: int, *, branch_kernel: int, rate: float) -> ModelSpec:
    """Nine inception blocks in three stages between pools."""

    def block(x: Tensor, widths: tuple[int, ...]) -> Tensor:
        one, reduce3, three, reduce5, five, projection = widths
        return concat(
            conv(x, one, 1),
            conv(conv(x, reduce3, 1), three, 3),
            conv(conv(x, reduce5, 1), five, branch_kernel),
            conv(max_pool2d(x, 3, stride=1, padding=1, ceil_mode=True), projection, 1),
        )

    x = conv(image_input(input_shape), 64, 7, stride=2)
    x = max_pool2d(x, 3, stride=2, ceil_mode=True)
    x = conv(conv(x, 64, 1), 192, 3)
    for window, stage in zip((3, 3, 2), GOOGLENET_STAGES, strict=True):
        x = max_pool2d(x, window, stride=2, ceil_mode=True)
        for widths in stage:
            x = block(x, widths)
    x = dropout(global_avg_pool2d(x), rate)
    return build(name, classify(x, num_classes))


def _pooled(x: Tensor, filters: int) -> Tensor:
    return conv(avg_pool2d(x, 3, stride=1, padding=1), filters, 1)


def _chain(x: Tensor, *layers: tuple[int, int | tuple[int, int]]) -> Tensor:
    for filters, kernel in layers:
        x = conv(x, filters, kernel)
    return x


def _shrink(x: Tensor, filters: int) -> Tensor:
    return conv(x, filters, 3, stride=2, padding=0)


def block_a(x: Tensor, pool_filters: int) -> Tensor:
    """At 35x35: 1x1, 5x5, double 3x3 and pool."""
    return concat(
        conv(x, 64, 1), _chain(x, (48, 1), (64, 5)), _chain(x, (64, 1), (96, 3), (96, 3)), _pooled(x, pool_filters)
    )


def block_b(x: Tensor) -> Tensor:
    """From 35x35 to 17x17."""
    return concat(_shrink(x, 384), _shrink(_chain(x, (64, 1), (96, 3)), 96), max_pool2d(x, 3, stride=2))


def block_c(x: Tensor, width: int) -> Tensor:
    """At 17x17: 7x7 windows as pairs of 1x7 and 7x1."""
    row, column = (1, 7), (7, 1)
    return concat(
        conv(x, 192, 1),
        _chain(x, (width, 1), (width, row), (192, column)),
        _chain(x, (width, 1), (width, column), (width, row), (width, column), (192, row)),
        _pooled(x, 192),
    )


def block_d(x: Tensor) -> Tensor:
    """From 17x17 to 8x8."""
    return concat(
        _shrink(conv(x, 192, 1), 320),
        _shrink(_chain(x, (192, 1), (192, (1, 7)), (192, (7, 1))), 192),
        max_pool2d(x, 3, stride=2),
    )


def block_e(x: Tensor) -> Tensor:
    """At 8x8: 3x3 windows fanned out to 1x3 and 3x1 side by side."""
    single, double = conv(x, 384, 1), _chain(x, (448, 1), (384, 3))
    fans = [conv(branch, 384, kernel) for branch in (single, double) for kernel in ((1, 3), (3, 1))]
    return concat(conv(x, 320, 1), *fans, _pooled(x, 192))


def inceptionv3(name: str, input_shape: Shape, num_classes: int, *, form: str, rate: float) -> ModelSpec:
    """Inception v3 for 299x299 images, at least 75x75; in the CIFAR form the first layers keep the image's size."""
    x = image_input(input_shape)
    if pick_form(form, input_shape) == "cifar":
        x = _chain(x, (32, 3), (32, 3), (64, 3), (80, 1), (192, 3))
    else:
        x = conv(conv(_shrink(x, 32), 32, 3, padding=0), 64, 3)
        x = max_pool2d(x, 3, stride=2)
        x = conv(conv(x, 80, 1), 192, 3, padding=0)
        x = max_pool2d(x, 3, stride=2)
    for pool_filters in (32, 64, 64):
        x = block_a(x, pool_filters)
    x = block_b(x)
    for width in (128, 160, 160, 192):
        x = block_c(x, width)
    x = block_e(block_e(block_d(x)))
    x = dropout(global_avg_pool2d(x), rate)
    return build(name, classify(x, num_classes))


class GoogLeNetOptions(NetworkOptions):
    """Of Inception v1."""

    family: ClassVar[str] = "googlenet"
    branch_kernel: int = option(3, "edge of the larger windows", ge=1, le=MAX_EXTENT)
    rate: float = option(0.2, RATE, ge=0, lt=1)


class InceptionOptions(NetworkOptions):
    """Of Inception v3."""

    family: ClassVar[str] = "inceptionv3"
    form: Form = option("auto", FORM)
    rate: float = option(0.5, RATE, ge=0, lt=1)


MEMBERS = tuple(
    map(
        NETWORKS.register,
        (
            Member("googlenet", googlenet, "Inception v1 with batch norm", options=GoogLeNetOptions()),
            Member("inceptionv3", inceptionv3, "Inception v3", (3, 299, 299), options=InceptionOptions()),
        ),
    )
)

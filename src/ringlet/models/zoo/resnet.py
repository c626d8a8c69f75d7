"""Residual networks (He et al. 2016): the ImageNet family 18 to 152 and the CIFAR family 20 to 1202.

Shortcuts that change the shape are 1x1 convolutions with batch norm ("projections", option B of the paper) in both
families. The strided convolution of a bottleneck is the 3x3 one ("v1.5"); ``version="v1"`` puts the stride on the
first 1x1 as the paper does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from ringlet.component import option
from ringlet.models.builder import (
    Tensor,
    add,
    batch_norm,
    build,
    conv2d,
    global_avg_pool2d,
    image_input,
    max_pool2d,
    relu,
)
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import (
    CIFAR,
    FORM,
    NETWORKS,
    Form,
    Member,
    NetworkOptions,
    classify,
    conv_norm_relu,
    pick_form,
)
from ringlet.operations.attributes import MAX_EXTENT, Shape

REPEATS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
BOTTLENECK_FROM = 50
CIFAR_DEPTHS = (20, 32, 44, 56, 110, 1202)
Block = Callable[[Tensor, int, int], Tensor]


def conv_norm(x: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
    """Convolution without bias and batch normalisation, no activation."""
    return batch_norm(
        conv2d(x, filters, kernel=kernel, stride=stride, padding="same", bias=False, initializer="he_normal")
    )


def residual(x: Tensor, branch: Tensor, stride: int) -> Tensor:
    """ReLU of the branch plus its shortcut, projected if the shapes differ."""
    shortcut = x if x.shape == branch.shape else conv_norm(x, branch.shape[0], 1, stride)
    return relu(add(branch, shortcut))


def basic_block(x: Tensor, width: int, stride: int) -> Tensor:
    """Two 3x3 convolutions."""
    branch = conv_norm(conv_norm_relu(x, width, 3, stride=stride), width, 3)
    return residual(x, branch, stride)


def bottleneck_block(x: Tensor, width: int, stride: int, *, version: str) -> Tensor:
    """1x1, 3x3 and a 1x1 convolution to four times the width."""
    first, second = (stride, 1) if version == "v1" else (1, stride)
    branch = conv_norm_relu(x, width, 1, stride=first)
    branch = conv_norm_relu(branch, width, 3, stride=second)
    return residual(x, conv_norm(branch, 4 * width, 1), stride)


def stages(x: Tensor, block: Block, repeats: tuple[int, ...], width: int) -> Tensor:
    """Stages of blocks; each stage after the first halves the image and doubles the width."""
    for stage, num_blocks in enumerate(repeats):
        for index in range(num_blocks):
            x = block(x, width << stage, 2 if stage and not index else 1)
    return x


def resnet(
    name: str, input_shape: Shape, num_classes: int, *, depth: int, form: str, version: str, width: int
) -> ModelSpec:
    """ResNet 18, 34, 50, 101 or 152; the CIFAR form has a 3x3 stem without pooling."""

    def bottleneck(x: Tensor, width: int, stride: int) -> Tensor:
        return bottleneck_block(x, width, stride, version=version)

    x = image_input(input_shape)
    if pick_form(form, input_shape) == "cifar":
        x = conv_norm_relu(x, width, 3)
    else:
        x = max_pool2d(conv_norm_relu(x, width, 7, stride=2), 3, stride=2, padding=1)
    x = stages(x, bottleneck if depth >= BOTTLENECK_FROM else basic_block, REPEATS[depth], width)
    return build(name, classify(global_avg_pool2d(x), num_classes))


def cifar_resnet(name: str, input_shape: Shape, num_classes: int, *, depth: int, width: int) -> ModelSpec:
    """ResNet of ``6n + 2`` layers: three stages of ``n`` basic blocks with 16, 32 and 64 filters."""
    x = conv_norm_relu(image_input(input_shape), width, 3)
    x = stages(x, basic_block, ((depth - 2) // 6,) * 3, width)
    return build(name, classify(global_avg_pool2d(x), num_classes))


class CifarResNetOptions(NetworkOptions):
    """Of residual networks for small images."""

    family: ClassVar[str] = "resnet20 to resnet1202"
    width: int = option(16, "filters of the first stage; they double twice", ge=1, le=MAX_EXTENT)


class ResNetOptions(NetworkOptions):
    """Of residual networks."""

    family: ClassVar[str] = "resnet18 to resnet152"
    form: Form = option("auto", FORM)
    version: Literal["v1", "v1.5"] = option("v1.5", "where a bottleneck is strided: in the 1x1 (v1) or the 3x3")
    width: int = option(64, "filters of the first stage; they double three times", ge=1, le=MAX_EXTENT)


_MEMBERS = (
    *(
        Member(
            f"resnet{depth}",
            cifar_resnet,
            f"residual network with {depth} layers for small images",
            CIFAR,
            10,
            fixed={"depth": depth},
            options=CifarResNetOptions(),
        )
        for depth in CIFAR_DEPTHS
    ),
    *(
        Member(
            f"resnet{depth}",
            resnet,
            f"residual network with {depth} layers",
            fixed={"depth": depth},
            options=ResNetOptions(),
        )
        for depth in REPEATS
    ),
)
MEMBERS = tuple(map(NETWORKS.register, _MEMBERS))

"""AlexNet (Krizhevsky et al. 2012), as one tower without local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence

from ringlet.models.builder import Tensor, build, conv2d, flatten, image_input, max_pool2d, relu
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import CIFAR, Member, classify, hidden_layers, pick_form
from ringlet.operations.attributes import Shape


def _conv(x: Tensor, filters: int, kernel: int, *, stride: int = 1, padding: int = 0) -> Tensor:
    return relu(conv2d(x, filters, kernel=kernel, stride=stride, padding=padding, initializer="he_normal"))


def alexnet(
    name: str, input_shape: Shape, num_classes: int, *, form: str, hidden: Sequence[int] | None, rate: float
) -> ModelSpec:
    """Five convolutions, three pools, two dense layers with dropout.

    The ImageNet form (227x227) starts with 11x11 windows of stride 4 and pools 3x3 windows of stride 2; the CIFAR
    form starts with 3x3 windows of stride 1, pools 2x2 windows, and has dense layers of 512 instead of 4096.
    """
    cifar = pick_form(form, input_shape) == "cifar"
    window = 2 if cifar else 3
    if hidden is None:
        hidden = (512, 512) if cifar else (4096, 4096)
    x = image_input(input_shape)
    x = _conv(x, 96, 3, padding=1) if cifar else _conv(x, 96, 11, stride=4)
    x = max_pool2d(x, window, stride=2)
    x = max_pool2d(_conv(x, 256, 5, padding=2), window, stride=2)
    for filters in (384, 384, 256):
        x = _conv(x, filters, 3, padding=1)
    x = hidden_layers(flatten(max_pool2d(x, window, stride=2)), hidden, rate=rate)
    return build(name, classify(x, num_classes))


_OPTIONS = {"form": "auto", "hidden": None, "rate": 0.5}
MEMBERS = (
    Member("alexnet", alexnet, "AlexNet for 227x227 images", (3, 227, 227), options=_OPTIONS),
    Member("alexnet_cifar10", alexnet, "AlexNet for 32x32 images", CIFAR, 10, options={**_OPTIONS, "form": "cifar"}),
)

"""VGG (Simonyan and Zisserman 2015): stacks of 3x3 convolutions between 2x2 pools; and small ones, vgg1 to vgg3."""

from __future__ import annotations

from collections.abc import Sequence

from ringlet.models.builder import Tensor, batch_norm, build, conv2d, dropout, flatten, image_input, max_pool2d, relu
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import CIFAR, Member, classify, hidden_layers, pick_form
from ringlet.operations.attributes import Shape

WIDTHS = (64, 128, 256, 512, 512)
REPEATS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
SMALL_WIDTHS = (32, 64, 128)


def stack(x: Tensor, width: int, repeats: int, *, norm: bool, ceil_mode: bool = False) -> Tensor:
    """``repeats`` convolutions with ReLU (and batch norm), then a pool."""
    for _ in range(repeats):
        x = conv2d(x, width, kernel=3, padding="same", initializer="he_normal")
        x = relu(batch_norm(x) if norm else x)
    return max_pool2d(x, 2, ceil_mode=ceil_mode)


def vgg(
    name: str,
    input_shape: Shape,
    num_classes: int,
    *,
    depth: int,
    norm: bool,
    form: str,
    hidden: Sequence[int] | None,
    rate: float,
) -> ModelSpec:
    """VGG of ``depth`` 11, 13, 16 or 19.

    The ImageNet form has two dense layers of 4096 before the classifier, the CIFAR form none; ``hidden`` changes that
    (PyDTNN's CIFAR form is ``hidden=(512, 512)``). In the CIFAR form pools round up, so that images smaller than
    32x32 also pass five.
    """
    cifar = pick_form(form, input_shape) == "cifar"
    if hidden is None:
        hidden = () if cifar else (4096, 4096)
    x = image_input(input_shape)
    for width, repeats in zip(WIDTHS, REPEATS[depth], strict=True):
        x = stack(x, width, repeats, norm=norm, ceil_mode=cifar)
    x = hidden_layers(flatten(x), hidden, rate=rate)
    return build(name, classify(x, num_classes))


def small_vgg(
    name: str, input_shape: Shape, num_classes: int, *, num_stacks: int, norm: bool, rates: tuple[float, ...]
) -> ModelSpec:
    """One to three stacks of two convolutions and a dense layer of 128; ``rates``: the dropout after each of them."""
    x = image_input(input_shape)
    rates = rates or (0.0,) * (num_stacks + 1)
    for width, rate in zip(SMALL_WIDTHS[:num_stacks], rates, strict=False):
        x = stack(x, width, 2, norm=norm)
        x = dropout(x, rate) if rate else x
    x = hidden_layers(flatten(x), (128,), rate=rates[-1])
    return build(name, classify(x, num_classes))


def _small_members() -> list[Member]:
    forms = (("", False, None), ("do", False, (0.2, 0.2, 0.2)), ("bn", True, None), ("dobn", True, (0.2, 0.3, 0.4)))
    return [
        Member(
            f"vgg{n}{suffix}",
            small_vgg,
            f"{n} stack(s) of two 3x3 convolutions" + (", dropout" if rates else "") + (", batch norm" if norm else ""),
            CIFAR,
            10,
            fixed={"num_stacks": n, "norm": norm, "rates": (*rates[:n], 0.5 if norm else 0.2) if rates else ()},
        )
        for n in (1, 2, 3)
        for suffix, norm, rates in forms
    ]


def _members() -> list[Member]:
    return [
        Member(
            f"vgg{depth}{'_bn' if norm else ''}",
            vgg,
            f"VGG with {depth} layers{' and batch norm' if norm else ''}",
            fixed={"depth": depth, "norm": norm},
            options={"form": "auto", "hidden": None, "rate": 0.5},
        )
        for depth in REPEATS
        for norm in (False, True)
    ]


MEMBERS = (*_small_members(), *_members())

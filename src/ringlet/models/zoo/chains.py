"""Networks that are one chain of layers: small ones for small images, AlexNet, VGG and MobileNet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from ringlet.component import option
from ringlet.models.builder import (
    Tensor,
    batch_norm,
    build,
    conv2d,
    dense,
    dropout,
    flatten,
    global_avg_pool2d,
    image_input,
    max_pool2d,
    relu,
)
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import (
    CIFAR,
    FORM,
    MNIST,
    NETWORKS,
    RATE,
    Form,
    Member,
    NetworkOptions,
    classify,
    conv_norm_relu,
    hidden_layers,
    is_small,
    pick_form,
)
from ringlet.operations.attributes import Shape


class PerceptronOptions(NetworkOptions):
    """Of the perceptron."""

    family: ClassVar[str] = "simplemlp"
    hidden: tuple[int, ...] = option((512, 512, 512), "units of the dense layers")


class DropoutOptions(NetworkOptions):
    """Of networks that can change their dropout alone."""

    family: ClassVar[str] = "mnistcnn"
    rate: float = option(0.25, RATE, ge=0, lt=1)


class ClassicOptions(NetworkOptions):
    """Of AlexNet and VGG."""

    family: ClassVar[str] = "alexnet, vgg"
    form: Form = option("auto", FORM)
    hidden: tuple[int, ...] | None = option(
        None, "units of the dense layers before the classifier; default: the form's"
    )
    rate: float = option(0.5, RATE, ge=0, lt=1)


MAX_WIDTH = 16.0


class MobileNetOptions(NetworkOptions):
    """Of MobileNet."""

    family: ClassVar[str] = "mobilenet"
    width: float = option(1.0, "factor of every number of filters", gt=0, le=MAX_WIDTH)
    activation: Literal["relu", "relu6"] = option("relu", "after every batch norm; other packages have relu6")


# -- small networks: a perceptron, PyDTNN's simple CNN, the MNIST CNN of the multi-GPU study ---------------------------
def simplemlp(name: str, input_shape: Shape, num_classes: int, *, hidden: tuple[int, ...]) -> ModelSpec:
    """A perceptron: dense layers with ReLU."""
    x = image_input(input_shape)
    if len(input_shape) > 1:
        x = flatten(x)
    for width in hidden:
        x = relu(dense(x, width))
    return build(name, classify(x, num_classes))


def simplecnn(name: str, input_shape: Shape, num_classes: int) -> ModelSpec:
    """Two 3x3 convolutions of 4 and 8 filters, a pool and a dense layer of 128."""
    x = image_input(input_shape)
    x = relu(conv2d(x, 4, kernel=3))
    x = relu(conv2d(x, 8, kernel=3))
    x = flatten(max_pool2d(x, 2))
    x = relu(dense(x, 128))
    return build(name, classify(x, num_classes))


def mnistcnn(name: str, input_shape: Shape, num_classes: int, *, rate: float) -> ModelSpec:
    """Convolutions of 32, 256 (batch norm) and 128 filters, pool, dropout and a dense layer of 128."""
    x = image_input(input_shape)
    x = relu(conv2d(x, 32, kernel=3))
    x = conv2d(x, 256, kernel=3)
    x = relu(batch_norm(x))
    x = relu(conv2d(x, 128, kernel=3))
    x = dropout(max_pool2d(x, 2), rate)
    x = relu(dense(flatten(x), 128))
    return build(name, classify(x, num_classes))


# -- AlexNet (Krizhevsky et al. 2012), as one tower without local response normalisation -------------------------------
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


# -- VGG (Simonyan and Zisserman 2015): stacks of 3x3 convolutions between 2x2 pools -----------------------------------
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
            options=ClassicOptions(),
        )
        for depth in REPEATS
        for norm in (False, True)
    ]


# -- MobileNet v1 (Howard et al. 2017): each convolution split into one per channel and a 1x1 over channels ------------
MOBILENET_LAYERS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def mobilenetv1(name: str, input_shape: Shape, num_classes: int, *, width: float, activation: str) -> ModelSpec:
    """``width`` scales every number of filters; small images keep their size in the first layer."""
    x = image_input(input_shape)
    layer = partial(conv_norm_relu, activation=activation)
    x = layer(x, max(1, int(32 * width)), 3, stride=1 if is_small(input_shape) else 2)
    for filters, stride in MOBILENET_LAYERS:
        x = layer(x, x.shape[0], 3, stride=stride, groups=x.shape[0])
        x = layer(x, max(1, int(filters * width)), 1)
    return build(name, classify(global_avg_pool2d(x), num_classes))


MEMBERS = tuple(
    map(
        NETWORKS.register,
        (
            Member(
                "simplemlp",
                simplemlp,
                "three dense layers of 512",
                MNIST,
                10,
                options=PerceptronOptions(),
                takes_features=True,
            ),
            Member("simplecnn", simplecnn, "two small convolutions and a dense layer of 128", MNIST, 10),
            Member(
                "mnistcnn",
                mnistcnn,
                "the MNIST CNN of the multi-GPU study: convolutions 32, 256, 128",
                MNIST,
                10,
                options=DropoutOptions(),
            ),
            Member("alexnet", alexnet, "AlexNet for 227x227 images", (3, 227, 227), options=ClassicOptions()),
            Member(
                "alexnet_cifar10", alexnet, "AlexNet for 32x32 images", CIFAR, 10, options=ClassicOptions(form="cifar")
            ),
            *_small_members(),
            *_members(),
            Member("mobilenetv1", mobilenetv1, "depthwise separable convolutions", options=MobileNetOptions()),
        ),
    )
)

"""DenseNet (Huang et al. 2017): every layer of a block sees the outputs of all layers before it."""

from __future__ import annotations

from typing import ClassVar

from ringlet.component import option
from ringlet.models.builder import (
    Tensor,
    avg_pool2d,
    batch_norm,
    build,
    concat,
    conv2d,
    dropout,
    global_avg_pool2d,
    image_input,
    max_pool2d,
    relu,
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

REPEATS = {121: (6, 12, 24, 16), 161: (6, 12, 36, 24), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}
GROWTH = {121: 32, 161: 48, 169: 32, 201: 32}
BOTTLENECK = 4


def norm_relu_conv(x: Tensor, filters: int, kernel: int) -> Tensor:
    """Batch norm and ReLU before the convolution."""
    return conv2d(relu(batch_norm(x)), filters, kernel=kernel, padding="same", bias=False, initializer="he_normal")


def dense_layer(x: Tensor, growth: int, rate: float) -> Tensor:
    """``x`` and ``growth`` new channels computed from it."""
    new = norm_relu_conv(norm_relu_conv(x, BOTTLENECK * growth, 1), growth, 3)
    return concat(x, dropout(new, rate) if rate else new)


def densenet(
    name: str, input_shape: Shape, num_classes: int, *, depth: int, growth: int, form: str, rate: float
) -> ModelSpec:
    """Four dense blocks with halving transitions between them; the CIFAR form has a 3x3 stem without pooling."""
    x = image_input(input_shape)
    if pick_form(form, input_shape) == "cifar":
        x = conv_norm_relu(x, 2 * growth, 3)
    else:
        x = max_pool2d(conv_norm_relu(x, 2 * growth, 7, stride=2), 3, stride=2, padding=1)
    for index, num_layers in enumerate(REPEATS[depth]):
        if index:
            x = avg_pool2d(norm_relu_conv(x, x.shape[0] // 2, 1), 2)
        for _ in range(num_layers):
            x = dense_layer(x, growth, rate)
    x = global_avg_pool2d(relu(batch_norm(x)))
    return build(name, classify(x, num_classes))


class DenseNetOptions(NetworkOptions):
    """Of densely connected networks."""

    family: ClassVar[str] = "densenet"
    growth: int = option(32, "filters that every layer adds", ge=1, le=MAX_EXTENT)
    form: Form = option("auto", FORM)
    rate: float = option(0.0, RATE, ge=0, lt=1)


MEMBERS = tuple(
    NETWORKS.register(
        Member(
            f"densenet{depth}",
            densenet,
            f"densely connected network with {depth} layers",
            fixed={"depth": depth},
            options=DenseNetOptions(growth=GROWTH[depth]),
        )
    )
    for depth in REPEATS
)

"""Small networks for small images: a perceptron, PyDTNN's simple CNN and the MNIST CNN of the multi-GPU study."""

from __future__ import annotations

from ringlet.models.builder import batch_norm, build, conv2d, dense, dropout, flatten, image_input, max_pool2d, relu
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import MNIST, Member, classify
from ringlet.operations.attributes import Shape


def simplemlp(name: str, input_shape: Shape, num_classes: int, *, hidden: tuple[int, ...]) -> ModelSpec:
    """A perceptron: dense layers with ReLU."""
    x = flatten(image_input(input_shape))
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


MEMBERS = (
    Member("simplemlp", simplemlp, "three dense layers of 512", MNIST, 10, options={"hidden": (512, 512, 512)}),
    Member("simplecnn", simplecnn, "two small convolutions and a dense layer of 128", MNIST, 10),
    Member(
        "mnistcnn", mnistcnn, "the MNIST CNN of the multi-GPU study: convolutions 32, 256, 128", MNIST, 10,
        options={"rate": 0.25},
    ),
)  # fmt: skip

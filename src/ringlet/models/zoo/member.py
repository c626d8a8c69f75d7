"""What a member of the zoo is, and the pieces that several families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ringlet.component import Component, OptionError, Registry
from ringlet.errors import UnknownNameError, UsageError, show
from ringlet.models.builder import Padding, Tensor, Window, apply, batch_norm, conv2d, dense, dropout, relu, softmax
from ringlet.models.spec import ModelSpec
from ringlet.operations.attributes import Shape

IMAGENET: Shape = (3, 224, 224)
CIFAR: Shape = (3, 32, 32)
MNIST: Shape = (1, 28, 28)
SMALL_IMAGE = 64
"""Images up to this height and width get the CIFAR form of a network."""

DATASET_FORMS: Mapping[str, tuple[Shape, int]] = {
    "mnist": (MNIST, 10),
    "cifar10": (CIFAR, 10),
    "cifar100": (CIFAR, 100),
    "imagenet": (IMAGENET, 1000),
}
"""Suffixes of names, as in ``vgg16_cifar10``: the data's shape and number of classes."""


NETWORKS: Registry[Member] = Registry("model", package="ringlet.models.zoo", group="models")
Form = Literal["auto", "cifar", "imagenet"]
FORM = "the CIFAR form for small images, the ImageNet form, or auto: by the size of the images"
RATE = "share of the features that dropout leaves out"


class NetworkOptions(Component):
    """What users may change of a family; this one has nothing."""

    family: ClassVar[str] = ""
    """How help calls the networks that have these options; default: their names."""

    @classmethod
    def title(cls) -> str:
        """How messages call it."""
        return "network"


@dataclass(frozen=True)
class Member:
    """One name of the zoo: ``family(name, input_shape, num_classes, **options)`` with its defaults."""

    name: str
    family: Callable[..., ModelSpec]
    summary: str
    input_shape: Shape = IMAGENET
    num_classes: int = 1000
    min_classes: int = 2
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """What the name decides: ``depth=50`` of resnet50. Not for users to change."""
    options: NetworkOptions = field(default_factory=NetworkOptions)
    """What users may change, with this member's defaults."""
    takes_features: bool = False
    """Whether inputs may be plain features ``(f,)`` instead of images."""

    def __post_init__(self) -> None:
        if not isinstance(self.options, NetworkOptions):
            raise UsageError(f"model '{self.name}': options must be NetworkOptions, got {show(self.options)}")

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options, with those given; unknown names and wrong values are errors."""
        known = type(self.options).model_fields
        for name in given:
            if name not in known:
                raise UnknownNameError(f"option of model '{self.name}'", name, known)
        try:
            chosen = self.options.replace(**given)
        except OptionError as error:
            raise OptionError(f"model '{self.name}'", error.problems) from None
        return {name: getattr(chosen, name) for name in known}


def is_small(input_shape: Shape) -> bool:
    """Whether images of this shape get the CIFAR form."""
    return max(input_shape[1:]) <= SMALL_IMAGE


def pick_form(form: str, input_shape: Shape) -> str:
    """``"cifar"`` or ``"imagenet"``, from an option or, with ``"auto"``, from the size of the images."""
    if form != "auto":
        return form
    return "cifar" if is_small(input_shape) else "imagenet"


def conv_norm_relu(
    x: Tensor, filters: int, kernel: Window, *, stride: Window = 1, padding: Padding = "same", groups: int = 1,
    bias: bool = False, epsilon: float = 1e-5, momentum: float = 0.9, activation: str = "relu",
) -> Tensor:  # fmt: skip
    """Convolution (He-normal weights), batch normalisation, ReLU or another activation."""
    x = conv2d(
        x, filters, kernel=kernel, stride=stride, padding=padding, groups=groups, bias=bias, initializer="he_normal"
    )
    return apply(activation, batch_norm(x, epsilon=epsilon, momentum=momentum))


def hidden_layers(x: Tensor, widths: Sequence[int], *, rate: float = 0.0) -> Tensor:
    """Dense layers with ReLU, each followed by dropout if ``rate`` is not 0."""
    for width in widths:
        x = relu(dense(x, width, initializer="he_normal"))
        if rate:
            x = dropout(x, rate)
    return x


def classify(x: Tensor, num_classes: int) -> Tensor:
    """The end of every classifier: a dense layer and softmax."""
    return softmax(dense(x, num_classes))

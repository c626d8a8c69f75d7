"""Known networks by family; every name is made by a parametric function, never by a copy.

``create("resnet18", input_shape=(3, 32, 32), num_classes=10)``; names ignore case, ``-`` and ``_``,
and may end in a data set whose shapes to use: ``vgg16_cifar10``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

from ringlet.component import key
from ringlet.errors import ConfigError, SpecError, UnknownNameError, show
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.last_layer import LastLayer, with_last_layer
from ringlet.models.zoo.member import DATASET_FORMS, NETWORKS, Member, NetworkOptions
from ringlet.operations.attributes import Shape, check_shape, is_integer

__all__ = ["NETWORKS", "Member", "NetworkOptions", "create", "describe", "names"]


def names() -> list[str]:
    """Every name of Ringlet's own, sorted; plugins (:mod:`ringlet.plugins`) may add others."""
    return sorted(NETWORKS.names())


def describe(name: str) -> Member:
    """What is known about a name without building it: summary, default shape and classes, options and defaults."""
    return _find(name)[0]


def create(
    name: str,
    *,
    input_shape: Sequence[int] | None = None,
    num_classes: int | None = None,
    last_layer: Any = None,
    **options: Any,
) -> ModelSpec:
    """The network called ``name``; what is not given comes from the name's data set suffix or the family's defaults.

    ``last_layer`` ("softmax", "sigmoid" or "linear") takes the place of the softmax or sigmoid that it ends in.
    """
    if last_layer is not None and last_layer not in get_args(LastLayer):
        raise UnknownNameError("last layer", show(last_layer), get_args(LastLayer))
    member, dataset = _find(name)
    default_shape, default_classes = DATASET_FORMS[dataset] if dataset else (member.input_shape, member.num_classes)
    shape = _check_input(member, default_shape if input_shape is None else input_shape)
    least = member.min_classes if last_layer in (None, "softmax") else 1
    classes = _check_classes(member, default_classes if num_classes is None else num_classes, least)
    spec = member.family(member.name, shape, classes, **member.fixed, **member.checked(options))
    return spec if last_layer is None else with_last_layer(spec, last_layer)


def fitting(input_shape: Shape, *, paints: bool = False) -> str:
    """The name of a network that learns data of a shape well enough to begin with; ``paints``: it gives masks."""
    if paints:
        return "unet"
    if len(input_shape) == 1:
        return "simplemlp"
    smallest = min(input_shape[1:])
    return next(name for limit, name in _BY_SIZE if smallest < limit)


_BY_SIZE = ((16, "vgg1dobn"), (64, "vgg3bn"), (math.inf, "resnet18"))
"""Networks for images with a side shorter than so many pixels."""


def _find(name: str) -> tuple[Member, str | None]:
    """The member and the data set that ``name`` ends in, if it does."""
    if not isinstance(name, str):
        raise UnknownNameError("model", show(name), names())
    if not NETWORKS.knows(name):
        for dataset in DATASET_FORMS:
            stem = key(name).removesuffix(dataset)
            if stem != key(name) and NETWORKS.knows(stem):
                return NETWORKS.find(stem), dataset
    return NETWORKS.find(name if len(name) <= 60 else f"{name[:59]}…"), None


def _check_input(member: Member, value: Any) -> Shape:
    try:
        shape = check_shape(value)
    except SpecError as error:
        raise SpecError(f"{member.name}: input_shape {error}") from None
    if len(shape) != 3 and not (len(shape) == 1 and member.takes_features):
        others = "" if member.takes_features else ". Networks for features (f,): " + ", ".join(_for_features())
        raise SpecError(f"{member.name}: input_shape must be (channels, height, width), got {show(value)}{others}")
    return shape


def _for_features() -> list[str]:
    return sorted(member.name for member in NETWORKS.entries() if member.takes_features)


def _check_classes(member: Member, value: Any, least: int) -> int:
    if not is_integer(value) or value < least:
        raise ConfigError(f"{member.name}: num_classes must be an integer of at least {least}, got {show(value)}")
    return int(value)

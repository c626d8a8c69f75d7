"""Known networks by family; every name is made by a parametric function, never by a copy.

``create("resnet18", input_shape=(3, 32, 32), num_classes=10)``; names ignore case, ``-`` and ``_``,
and may end in a data set whose shapes to use: ``vgg16_cifar10``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ringlet import plugins
from ringlet.errors import ConfigError, SpecError, UnknownNameError, show
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo.member import DATASET_FORMS, Member
from ringlet.operations.attributes import MAX_EXTENT, Shape, check_shape, is_integer

__all__ = ["Member", "create", "describe", "names"]

_FAMILIES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
"""Every module here; those that have ``MEMBERS`` add them."""
_MEMBERS: Mapping[str, Member] = {
    member.name: member for family in _FAMILIES for member in getattr(family, "MEMBERS", ())
}
_KEYS: Mapping[str, str] = {name.replace("_", ""): name for name in _MEMBERS}


def names() -> list[str]:
    """Every name of Ringlet's own, sorted; plugins (:mod:`ringlet.plugins`) may add others."""
    return sorted(_MEMBERS)


def describe(name: str) -> Member:
    """What is known about a name without building it: summary, default shape and classes, options and defaults."""
    return _find(name)[0]


def create(
    name: str, *, input_shape: Sequence[int] | None = None, num_classes: int | None = None, **options: Any
) -> ModelSpec:
    """The network called ``name``; what is not given comes from the name's data set suffix or the family's defaults."""
    member, dataset = _find(name)
    default_shape, default_classes = DATASET_FORMS[dataset] if dataset else (member.input_shape, member.num_classes)
    shape = _check_image(member, default_shape if input_shape is None else input_shape)
    classes = _check_classes(member, default_classes if num_classes is None else num_classes)
    return member.family(member.name, shape, classes, **member.fixed, **_check_options(member, options))


def _find(name: str) -> tuple[Member, str | None]:
    """The member and the data set that ``name`` ends in, if it does."""
    key = name.lower().replace("-", "").replace("_", "") if isinstance(name, str) else show(name)
    if key in _KEYS:
        return _MEMBERS[_KEYS[key]], None
    for dataset in DATASET_FORMS:
        stem = key.removesuffix(dataset)
        if stem != key and stem in _KEYS:
            return _MEMBERS[_KEYS[stem]], dataset
    if isinstance(name, str):
        plugin = plugins.find("models", name)
        if plugin is not None:
            return _check_member(name, plugin), None
    raise plugins.unknown("model", name[:60] if isinstance(name, str) else key, _MEMBERS, "models")


def _check_member(name: str, plugin: Any) -> Member:
    if not isinstance(plugin, Member):
        raise plugins.not_a("models", name, "a Member of ringlet.models.zoo")
    return plugin


def _check_image(member: Member, value: Any) -> Shape:
    try:
        shape = check_shape(value)
    except SpecError as error:
        raise SpecError(f"{member.name}: input_shape {error}") from None
    if len(shape) != 3:
        raise SpecError(f"{member.name}: input_shape must be (channels, height, width), got {show(value)}")
    return shape


def _check_classes(member: Member, value: Any) -> int:
    if not is_integer(value) or value < member.min_classes:
        raise ConfigError(
            f"{member.name}: num_classes must be an integer of at least {member.min_classes}, got {show(value)}"
        )
    return int(value)


def _check_options(member: Member, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in member.options:
            raise UnknownNameError(f"option of model '{member.name}'", name, member.options)
    return {name: _check_option(member, name, given.get(name, default)) for name, default in member.options.items()}


def _check_option(member: Member, name: str, value: Any) -> Any:
    """An option's value has the kind of its default: number, text, or layer widths (where the default may be None)."""
    default = member.options[name]
    if value is None and default is None:
        return None
    if default is None or isinstance(default, tuple):
        valid, wanted = isinstance(value, (list, tuple)) and all(map(is_integer, value)), "a list of integers"
    elif isinstance(default, float):
        valid, wanted = isinstance(value, float) or is_integer(value), "a number"
    elif isinstance(default, int):
        valid, wanted = is_integer(value) and 0 <= value <= MAX_EXTENT, "an integer, not negative"
    else:
        valid, wanted = isinstance(value, str), "a text"
    if not valid:
        raise ConfigError(f"{member.name}: option {name} must be {wanted}, got {show(value)}")
    return tuple(value) if isinstance(value, list) else value

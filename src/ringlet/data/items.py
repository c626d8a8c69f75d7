"""One item of people's data, a sample or a batch: ``(x, y)``, ``(x, y, weight)`` or a mapping with such names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ringlet.data.values import is_picture, type_name
from ringlet.errors import DataError

INPUT_NAMES = ("x", "images", "image", "img", "data", "inputs", "input", "features", "pixel_values")
TARGET_NAMES = ("y", "labels", "label", "targets", "target", "masks", "mask", "fine_label", "segmentation_mask")
WEIGHT_NAMES = ("sample_weights", "sample_weight", "weights", "weight", "w")
_EXPECTED = "expected (x, y), (x, y, weights), or a mapping with names such as x and y, image and label"


class Item(NamedTuple):
    """Inputs and targets of one sample or of several, and how much they count."""

    inputs: Any
    targets: Any
    weights: Any = None


def split_item(item: Any, what: str) -> Item:
    """The parts of an item; anything else is a DataError that says what was expected."""
    if isinstance(item, Mapping):
        return split_mapping(item, what)
    if isinstance(item, tuple | list) and len(item) in (2, 3):
        found = Item(*item)
    else:
        count = f" of {len(item)}" if isinstance(item, tuple | list) else ""
        raise DataError(f"{what} is a {type_name(item)}{count}: {_EXPECTED}")
    if isinstance(found.inputs, Mapping) or (isinstance(found.inputs, tuple) and not is_picture(found.inputs)):
        raise DataError(
            f"{what}: its input is a {type_name(found.inputs)}: networks have one input, so expected one array"
        )
    return found


def split_mapping(item: Mapping[Any, Any], what: str, prefix: str = "", suffix: str = "") -> Item:
    """The parts of a mapping by their names, in upper or lower case."""
    names = {str(name).lower(): name for name in item}
    keys = [
        next((names[key] for name in known if (key := f"{prefix}{name}{suffix}") in names), None)
        for known in (INPUT_NAMES, TARGET_NAMES, WEIGHT_NAMES)
    ]
    if keys[0] is None or keys[1] is None:
        raise DataError(f"{what} has the names {_listed(names)}: {_EXPECTED}")
    return Item(*(None if key is None else item[key] for key in keys))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in list(names)[:12]) or "(none)"

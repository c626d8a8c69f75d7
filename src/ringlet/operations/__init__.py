"""Everything that is known of an operation of a network, in one module each: the vertical slices of the library.

Takes a name, gives an :class:`Operation`: attributes and shape rule, tensors, FLOPs, the native engine's kernel calls,
and what it is in PyTorch, Keras, ONNX and OpenVINO. Read ``base`` (the contract), ``native`` and ``writers`` (what
operations write themselves with), then any slice, ``dense`` say; ``activations`` has the shortest.

A module of this package that has ``OPERATIONS`` adds them; other packages add theirs by entry points of the group
``ringlet.operations``, each an :class:`Operation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from ringlet import plugins
from ringlet.errors import UsageError
from ringlet.operations.activations import Activation
from ringlet.operations.base import Layer, Operation

__all__ = ["OPERATIONS", "Activation", "Layer", "Operation", "find_operation", "plugin_operations"]

_found: dict[str, Operation] = {
    operation.name: operation
    for module in iter_modules(__path__)
    for operation in getattr(import_module(f"{__name__}.{module.name}"), "OPERATIONS", ())
}
OPERATIONS: Mapping[str, Operation] = MappingProxyType(_found)
"""Every operation by its name: Ringlet's own, and those of plugins that have been asked for."""


def find_operation(name: str) -> Operation:
    """The operation called ``name``, of Ringlet or of a plugin; or an error that suggests the nearest name."""
    if name not in _found:
        if name not in plugins.names("operations"):
            raise plugins.unknown("operation", name, _found, "operations")
        operation = plugins.load("operations", name)
        if not isinstance(operation, Operation) or operation.name != name:
            raise plugins.not_a("operations", name, f"a ringlet.operations.Operation called '{name}'")
        _found[name] = operation
    return _found[name]


def plugin_operations() -> list[Operation]:
    """All that installed packages add; those of broken packages are left out."""
    found = []
    for name in plugins.names("operations"):
        with suppress(UsageError):
            found.append(find_operation(name))
    return found

"""Stage 9: export. Takes a trained model; gives an artifact of another framework that needs nothing else.

``network`` turns spec and weights into the :class:`~ringlet.export.network.Network` that all targets are written from,
each by a module that asks the operations; ``parity`` compares the result with the training engine before it is kept
(``exporter``).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.export.exporter import Export, export_model

__all__ = ["Export", "export_model"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module 'ringlet.export' has no attribute '{name}'")
    return getattr(import_module("ringlet.export.exporter"), name)

"""Ringlet: distributed deep learning from two cores to a cluster.

The public names are loaded when they are first used, so that ``import ringlet`` costs next to nothing and imports no
framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.config import RunConfig
    from ringlet.data import Dataset, load_dataset
    from ringlet.errors import RingletError
    from ringlet.models.spec import ModelSpec
    from ringlet.training.history import History
    from ringlet.training.loaded_model import LoadedModel, load_model
    from ringlet.training.trainer import Trainer

__version__ = "0.1.0"

_HOMES = {
    "Dataset": "ringlet.data",
    "History": "ringlet.training.history",
    "LoadedModel": "ringlet.training.loaded_model",
    "ModelSpec": "ringlet.models.spec",
    "RingletError": "ringlet.errors",
    "RunConfig": "ringlet.config",
    "Trainer": "ringlet.training.trainer",
    "load_dataset": "ringlet.data",
    "load_model": "ringlet.training.loaded_model",
}

__all__ = [
    "Dataset",
    "History",
    "LoadedModel",
    "ModelSpec",
    "RingletError",
    "RunConfig",
    "Trainer",
    "__version__",
    "load_dataset",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, loaded or not."""
    return sorted({*globals(), *__all__})

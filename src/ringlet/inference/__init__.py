"""Stage 10: inference. Takes a trained model or an export of it, and pictures; gives predictions.

``description`` is what every artifact says about itself, ``artifact`` finds and opens them, ``runtimes`` has one module
per framework, ``preprocessing`` is what happens before the network, ``predictor`` joins all of it for programs and
databases. ``inputs`` lists what is to be predicted, ``scoring`` and ``pictures`` write the results to files. No module
here imports a framework before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.inference.artifact import Artifact
    from ringlet.inference.description import Description
    from ringlet.inference.predictor import Named, Prediction, Predictor
    from ringlet.inference.preprocessing import Preprocessing

_HOMES = {
    "Artifact": "artifact",
    "Description": "description",
    "Named": "predictor",
    "Prediction": "predictor",
    "Predictor": "predictor",
    "Preprocessing": "preprocessing",
}

__all__ = ["Artifact", "Description", "Named", "Prediction", "Predictor", "Preprocessing"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.inference' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.inference.{_HOMES[name]}"), name)

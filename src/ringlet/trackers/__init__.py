"""Trackers: takes the events of a run, gives them to the tools that people already watch their runs with.

``ringlet train --log tensorboard,mlflow,wandb``, or from Python ``Trainer(callbacks=[TensorBoard("logs")])``.
Each tracker writes on rank 0 only, and a run that resumes from a checkpoint continues without doubled points.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.trackers.mlflow import MLflow
    from ringlet.trackers.prometheus import Prometheus
    from ringlet.trackers.tensorboard import TensorBoard
    from ringlet.trackers.wandb import WandB

__all__ = ["MLflow", "Prometheus", "TensorBoard", "WandB"]


def __getattr__(name: str) -> Any:
    """Load a tracker when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'ringlet.trackers' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.trackers.{name.lower()}"), name)

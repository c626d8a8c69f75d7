"""Callbacks for ``fit``. Those that agree on metrics must come before those that use them."""

from __future__ import annotations

from ringlet.keras.callbacks.agreement import JoinCallback, StopTogetherCallback
from ringlet.keras.callbacks.broadcast import AverageStatisticsCallback, BroadcastGlobalVariablesCallback
from ringlet.keras.callbacks.checkpoint import BestModelCheckpoint
from ringlet.keras.callbacks.elastic import CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback
from ringlet.keras.callbacks.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from ringlet.keras.callbacks.metrics import MetricAverageCallback

__all__ = [
    "AverageStatisticsCallback",
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "JoinCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "StopTogetherCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]

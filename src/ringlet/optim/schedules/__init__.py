"""Schedules: the learning rate at every moment, and reasons to stop.

``rates`` are pure functions of time, ``monitors`` watch metrics, ``schedule`` chains both. Each rule is a component.
"""

from ringlet.optim.schedules.base import SCHEDULES, Best, Decision, Rule
from ringlet.optim.schedules.monitors import EarlyStopping, ModelCheckpoint, Monitor, ReduceOnPlateau, StopAtLoss
from ringlet.optim.schedules.rates import Cosine, RangeTest, Rate, ReduceEveryNEpochs, Step, WarmUp
from ringlet.optim.schedules.schedule import Schedule, parse_schedulers

__all__ = [
    "SCHEDULES",
    "Best",
    "Cosine",
    "Decision",
    "EarlyStopping",
    "ModelCheckpoint",
    "Monitor",
    "RangeTest",
    "Rate",
    "ReduceEveryNEpochs",
    "ReduceOnPlateau",
    "Rule",
    "Schedule",
    "Step",
    "StopAtLoss",
    "WarmUp",
    "parse_schedulers",
]

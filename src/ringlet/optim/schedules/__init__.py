"""Schedules: the learning rate at every moment, and reasons to stop.

One file per idea: ``rates`` are pure functions of time, ``monitors`` watch metrics, ``schedule`` chains both and
``parsing`` makes a chain from names and options.
"""

from ringlet.optim.schedules.monitors import EarlyStopping, ModelCheckpoint, Monitor, ReduceOnPlateau, StopAtLoss
from ringlet.optim.schedules.parsing import names, options, parse_schedulers
from ringlet.optim.schedules.rates import Cosine, Rate, ReduceEveryNEpochs, Step, WarmUp
from ringlet.optim.schedules.rule import Decision, Rule
from ringlet.optim.schedules.schedule import Schedule

__all__ = [
    "Cosine",
    "Decision",
    "EarlyStopping",
    "ModelCheckpoint",
    "Monitor",
    "Rate",
    "ReduceEveryNEpochs",
    "ReduceOnPlateau",
    "Rule",
    "Schedule",
    "Step",
    "StopAtLoss",
    "WarmUp",
    "names",
    "options",
    "parse_schedulers",
]

"""Stage 5: optimizers and schedules.

Takes a slice of the flat parameter buffer, the same slice of the flat gradient buffer and the optimizer's own flat
state; gives updated parameters, in place. :func:`create` makes an optimizer from its name, :func:`parse_schedulers` a
schedule of learning rates and reasons to stop.
"""

from typing import Any

from ringlet.optim.adam import Adam, AdamW, Nadam
from ringlet.optim.base import OPTIMIZERS, Optimizer
from ringlet.optim.clipping import clip_by_global_norm, clip_by_value, global_norm
from ringlet.optim.lars import LARS, segment_squares
from ringlet.optim.rmsprop import Adadelta, RMSProp
from ringlet.optim.schedules import SCHEDULES, Best, Decision, Schedule, parse_schedulers
from ringlet.optim.segments import NEVER, Pace, Segment, SegmentNorms, cut_segments, resting, segments_of
from ringlet.optim.sgd import SGD

__all__ = [
    "LARS",
    "NEVER",
    "OPTIMIZERS",
    "SCHEDULES",
    "SGD",
    "Adadelta",
    "Adam",
    "AdamW",
    "Best",
    "Decision",
    "Nadam",
    "Optimizer",
    "Pace",
    "RMSProp",
    "Schedule",
    "Segment",
    "SegmentNorms",
    "clip_by_global_norm",
    "clip_by_value",
    "create",
    "cut_segments",
    "global_norm",
    "parse_schedulers",
    "resting",
    "segment_squares",
    "segments_of",
]


def create(name: str, **hyperparameters: Any) -> Optimizer:
    """The optimizer called ``name`` (in any case), for instance ``create("sgd", learning_rate=0.1, momentum=0.9)``.

    ``SGDMomentum`` is ``sgd`` with momentum 0.9. ``decay`` is short for a decoupled ``weight_decay``.
    """
    optimizer: Optimizer = OPTIMIZERS.create(name, **hyperparameters)
    return optimizer

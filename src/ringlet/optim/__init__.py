"""Stage 5: optimizers and schedules.

Takes a slice of the flat parameter buffer, the same slice of the flat gradient buffer and the optimizer's own flat
state; gives updated parameters, in place. :func:`create` makes an optimizer from its name, :func:`parse_schedulers` a
schedule of learning rates and reasons to stop.
"""

from ringlet.optim.adadelta import Adadelta
from ringlet.optim.adam import Adam, AdamW, Nadam
from ringlet.optim.base import Optimizer
from ringlet.optim.clipping import clip_by_global_norm, clip_by_value, global_norm
from ringlet.optim.lars import LARS, segment_squares
from ringlet.optim.registry import create, names, options
from ringlet.optim.rmsprop import RMSProp
from ringlet.optim.schedules import Decision, Schedule, parse_schedulers
from ringlet.optim.segments import Segment, SegmentNorms, cut_segments, segments_of
from ringlet.optim.sgd import SGD

__all__ = [
    "LARS",
    "SGD",
    "Adadelta",
    "Adam",
    "AdamW",
    "Decision",
    "Nadam",
    "Optimizer",
    "RMSProp",
    "Schedule",
    "Segment",
    "SegmentNorms",
    "clip_by_global_norm",
    "clip_by_value",
    "create",
    "cut_segments",
    "global_norm",
    "names",
    "options",
    "parse_schedulers",
    "segment_squares",
    "segments_of",
]

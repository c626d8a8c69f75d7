"""Losses: what training makes small, each a component with its options and its formula for every engine.

``base`` says what a loss is, ``classes``, ``overlap`` and ``values`` have those of Ringlet, ``functions`` makes one of
a plain function. Engines ask a loss for its compiled kernel, for values and gradients in NumPy, or for an expression
in the operations of a framework; nothing here imports one.
"""

from __future__ import annotations

from ringlet.losses.base import LOSSES, Loss, PointwiseLoss
from ringlet.losses.functions import FunctionLoss, GivenLoss, loss

__all__ = ["LOSSES", "FunctionLoss", "GivenLoss", "Loss", "PointwiseLoss", "loss"]

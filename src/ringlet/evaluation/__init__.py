"""Detailed answers of an evaluation: takes outputs and targets of a pass, gives a report.

A ``tally`` of the task counts while the pass goes on, with ``exact`` sums and the ``examples`` that went most wrong, so
one pass is enough and the numbers do not depend on how samples were spread over ranks. ``report`` is the result as a
value, ``scores`` its parts. ``files`` writes it with pictures (``panels``, ``sheets``). ``views`` are the flipped and
moved images of test-time augmentation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.evaluation.report import Report
    from ringlet.evaluation.scores import Calibration, ClassScores, Example, OutputScores

_HOMES = {"Report": "report", **dict.fromkeys(("Calibration", "ClassScores", "Example", "OutputScores"), "scores")}

__all__ = ["Calibration", "ClassScores", "Example", "OutputScores", "Report"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.evaluation' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.evaluation.{_HOMES[name]}"), name)

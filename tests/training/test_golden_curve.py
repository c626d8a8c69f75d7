"""The golden loss curve: simplecnn on digits, reference kernels, float64. A change of the arithmetic shows here.

To renew it after an intended change: ``python tests/training/test_golden_curve.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringlet import Trainer
from ringlet.training.events import StepFinished

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "simplecnn_digits.json"


def curve() -> list[float]:
    losses: list[float] = []

    def keep(event: object) -> None:
        if isinstance(event, StepFinished):
            losses.append(event.figures["loss"])

    options = {"batch_size": 64, "learning_rate": 0.003, "seed": 7, "kernels": "reference", "dtype": "float64"}
    Trainer("simplecnn", "digits", callbacks=(keep,), validation_split=0.1, **options).fit(2)
    return losses


def test_the_loss_of_every_step_is_the_golden_one():
    assert curve() == pytest.approx(json.loads(GOLDEN.read_text())["losses"], rel=1e-9)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({"losses": curve()}, indent=1) + "\n")

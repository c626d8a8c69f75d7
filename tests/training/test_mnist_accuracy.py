"""Accuracy on real MNIST, the short form of ``benchmarks.mnist_accuracy``: one epoch, compiled kernels only."""

from __future__ import annotations

import pytest

from ringlet import Trainer
from ringlet.kernels import available


@pytest.mark.skipif("compiled" not in available(), reason="one epoch of MNIST needs the compiled kernels")
def test_one_epoch_of_mnist_reaches_95_per_cent(real_data):
    trainer = Trainer("simplecnn", "mnist", dataset_path=str(real_data / "mnist"), kernels="compiled")
    trainer.fit(1)
    assert trainer.evaluate()["accuracy"] >= 0.95

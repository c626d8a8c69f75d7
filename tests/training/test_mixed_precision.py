"""A run with ``--dtype bfloat16``: it learns, resumes to the same bits, and what it leaves behind is float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet import RunConfig, Trainer, load_model
from ringlet.checkpoint import CheckpointStore
from ringlet.errors import UsageError
from ringlet.kernels import available
from ringlet.training.session import Session

OPTIONS: dict[str, Any] = {
    "model": "simplecnn",
    "dataset": "digits",
    "num_epochs": 3,
    "steps_per_epoch": 12,
    "local_batch_size": 16,
    "shards": 2,
    "dtype": "bfloat16",
    "optimizer": "adam",
    "learning_rate": 0.003,
    "seed": 3,
}


def run(folder: Path, **changes: Any) -> Session:
    options = {**OPTIONS, "run_dir": str(folder), "checkpoint_every": "1 epochs", "keep": 0, **changes}
    session = Session.open(RunConfig(**options))
    session.run()
    return session


@pytest.mark.parametrize("kernels", available())
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, kernels):
    whole = run(tmp_path / "whole", kernels=kernels)
    run(tmp_path / "cut", kernels=kernels, num_epochs=2)
    resumed = run(tmp_path / "cut", kernels=kernels, resume="auto")
    np.testing.assert_array_equal(resumed.strategy.save()[0], whole.strategy.save()[0])


def test_it_learns(tmp_path):
    session = run(tmp_path / "run", num_epochs=4, steps_per_epoch=0)
    assert session.evaluate("test")["accuracy"] > 0.9


def test_checkpoints_and_models_hold_float32(tmp_path):
    session = run(tmp_path / "run", num_epochs=1)
    store = CheckpointStore(tmp_path / "run" / "checkpoints")
    saved = store.load(store.steps()[-1])
    assert {array.dtype for array in saved.tensors.values()} == {np.dtype("f4")}
    model = load_model(tmp_path / "run")
    images = session.dataset.test.read(np.arange(20))[0]
    mixed = session.replica.predict(session.dataset.normalization.apply(images, "float32"))
    np.testing.assert_allclose(model.predict(images), mixed, atol=0.05)


def test_the_precision_of_a_run_cannot_change(tmp_path):
    run(tmp_path / "run", num_epochs=1)
    with pytest.raises(UsageError, match="dtype"):
        run(tmp_path / "run", dtype="float32", resume="auto")


def test_a_trainer_takes_it(tmp_path):
    trainer = Trainer(config=RunConfig(**{**OPTIONS, "run_dir": str(tmp_path / "run")}))
    assert trainer.replica.compute_dtype.name == "bfloat16"
    assert trainer.replica.parameters.flat.dtype == np.float32

"""A trainer with data of the program: learning, resuming to the bit, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringlet
from ringlet import Trainer
from ringlet.data import load_dataset
from ringlet.errors import CheckpointError, ConfigError

DIGITS = load_dataset("digits")
X, Y = DIGITS.train.read(np.arange(400))
X_TEST, Y_TEST = DIGITS.test.read(np.arange(100)) if DIGITS.test else (X, Y)
OPTIONS: dict[str, Any] = {"global_batch_size": 32, "learning_rate": 0.01, "num_epochs": 2}


def parameters(trainer: Trainer) -> np.ndarray:
    return np.concatenate([view.ravel() for view in trainer.replica.parameters.views.values()])


class Rows:
    """A map-style data set."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return X[index].astype(np.float32), int(Y[index])


def test_arrays_teach_a_network() -> None:
    trainer = Trainer(
        "simplecnn", (X.astype(np.float32) / 16, Y), test=(X_TEST.astype(np.float32) / 16, Y_TEST), **OPTIONS
    )
    history = trainer.fit(6)
    assert "val_accuracy" in history.epochs[-1]
    assert len(trainer.session.source("validation")) == 40
    assert trainer.evaluate()["accuracy"] > 0.8


def test_any_form_of_the_data_gives_the_same_bits() -> None:
    runs = []
    for data in ((X.astype(np.float32), Y), Rows(), iter(zip(X.astype(np.float32), Y, strict=True))):
        trainer = Trainer("simplemlp", data, **OPTIONS)
        trainer.fit()
        runs.append(parameters(trainer))
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_predictions_take_the_layout_of_the_data() -> None:
    pictures = np.random.default_rng(1).random((40, 8, 8, 3)).astype(np.float32)
    trainer = Trainer("simplecnn", (pictures, np.arange(40) % 2), **OPTIONS)
    trainer.fit(1)
    np.testing.assert_array_equal(trainer.predict(pictures), trainer.predict(np.moveaxis(pictures, 3, 1)))
    assert any("taken as (n, height, width, channels)" in remark for remark in trainer.remarks)


def test_options_of_data_sets_apply_to_arrays() -> None:
    trainer = Trainer("simplemlp", (X, Y), validation_split=0.5, image_size=(4, 4), **OPTIONS)
    assert trainer.dataset.input_shape == (1, 4, 4)
    assert len(trainer.dataset.train) == 200
    with pytest.raises(ConfigError, match="num_samples cannot change a data set that is given as an object"):
        Trainer("simplecnn", DIGITS, num_samples=10)
    with pytest.raises(ConfigError, match="test= is for data that are given as objects"):
        Trainer("simplecnn", "digits", test=(X, Y))


def test_the_batch_of_a_loader_is_taken_unless_one_is_given() -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    loader = torch.utils.data.DataLoader(data, batch_size=25)
    assert Trainer("simplemlp", loader).global_batch_size == 25
    assert Trainer("simplemlp", loader, batch_size=10).global_batch_size == 10
    assert Trainer("simplemlp", loader, config=ringlet.RunConfig(global_batch_size=8)).global_batch_size == 8


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    def trainer(folder: str) -> Trainer:
        return Trainer("simplemlp", Rows(), run_dir=str(tmp_path / folder), checkpoint_every="1 epochs", **OPTIONS)

    whole = trainer("whole")
    whole.fit(2, resume="auto")
    trainer("parts").fit(1, resume="auto")
    resumed = trainer("parts")
    resumed.fit(2, resume="auto")
    np.testing.assert_array_equal(parameters(whole), parameters(resumed))


def test_data_that_changed_are_noticed(tmp_path: Path) -> None:
    def trainer(x: np.ndarray, y: np.ndarray, **more: Any) -> Trainer:
        return Trainer("simplemlp", (x, y), run_dir=str(tmp_path / "run"), **OPTIONS, **more)

    trainer(X, Y).fit(1, resume="auto")
    with pytest.raises(CheckpointError, match="train data: number of samples: 360 before, 270 now"):
        trainer(X[:300], Y[:300]).fit(2, resume="auto")
    moved = Y.copy()
    moved[[3, 4]] = moved[[4, 3]]
    with pytest.raises(CheckpointError, match=r"the classes of the samples changed.*--allow-changed-data"):
        trainer(X, moved).fit(2, resume="auto")
    with pytest.raises(CheckpointError, match="train data: the content of the samples changed"):
        trainer(X[::-1].copy(), Y).fit(2, resume="auto")
    with pytest.warns(UserWarning, match="the data changed since the checkpoint was written"):
        trainer(X, moved, allow_changed_data=True).fit(2, resume="auto")

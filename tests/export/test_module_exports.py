"""Exports of a PyTorch module: opened without the module they compute the same, normalisation included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="a module needs PyTorch: pip install 'ringlet[torch]'")

from torch import nn  # noqa: E402

from ringlet import Dataset, Predictor, Trainer  # noqa: E402
from ringlet.data.normalization import CIFAR10  # noqa: E402
from ringlet.data.source import ArraySource  # noqa: E402
from ringlet.errors import ModelFileError, UsageError  # noqa: E402

NEEDS = {".xml": "openvino", ".onnx": "onnxruntime", ".pt2": "torch"}


def photographs() -> Dataset:
    """Bytes of three channels, normalised like CIFAR-10."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 3, 9, 8)).astype(np.uint8), rng.integers(0, 3, 40)
    source = ArraySource(images, labels, 3)
    return Dataset("photographs", source, class_names=("cat", "dog", "owl"), normalization=CIFAR10)


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(4, 3),
    )
    made = Trainer(module, photographs(), num_epochs=1, global_batch_size=10, threads=1)
    made.fit()
    return made


@pytest.mark.parametrize("suffix", NEEDS)
def test_an_artifact_answers_like_the_trainer(trainer: Trainer, suffix: str, own_folder: Path) -> None:
    pytest.importorskip(NEEDS[suffix])
    export = trainer.export(own_folder / f"net{suffix}")
    assert export.parity.is_real
    images = trainer.dataset.train.read(np.arange(5))[0]
    expected = trainer.predict(images)
    with Predictor(own_folder / f"net{suffix}", threads=1) as predictor:
        answers = list(predictor.predict([np.moveaxis(image, 0, -1) for image in images]))
    np.testing.assert_allclose([answer.probabilities for answer in answers], expected, atol=1e-5)
    assert {answer.label for answer in answers} <= {"cat", "dog", "owl"}


def test_without_the_newer_exporter_of_pytorch_the_older_one_writes_onnx(
    trainer: Trainer, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("ringlet.export.modules.find_spec", lambda _: None)
    assert trainer.export(own_folder / "net.onnx").parity.largest < 1e-5


def test_masks_come_out_with_their_channels_first(own_folder: Path) -> None:
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    trainer = Trainer(nn.Conv2d(3, 1, 3, padding=1), "shapes", input_shape=(3, 16, 24), num_samples=20, num_epochs=1)
    trainer.export(own_folder / "masks.xml")
    image = np.moveaxis(trainer.dataset.train.read(np.arange(1))[0][0], 0, -1)
    with Predictor(own_folder / "masks.xml", threads=1) as predictor:
        (answer,) = predictor.predict([image])
    assert answer.mask is not None
    assert answer.mask.shape == (16, 24)


def test_a_network_of_ringlets_own_is_exported_by_the_same_method(own_folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    trainer = Trainer("simplemlp", "digits", num_samples=64, num_epochs=1, kernels="reference")
    trainer.fit()
    trainer.export(own_folder / "own.onnx")
    images = trainer.dataset.train.read(np.arange(3))[0]
    with Predictor(own_folder / "own.onnx", threads=1) as predictor:
        answers = list(predictor.predict([np.moveaxis(image, 0, -1) for image in images]))
    np.testing.assert_allclose([answer.probabilities for answer in answers], trainer.predict(images), atol=1e-5)


class Untraceable(nn.Module):
    """Takes another path for each input: an export would be of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(216, 3)

    def forward(self, x: Any) -> Any:
        scores = self.head(x.flatten(1))
        return scores * 3 if x.sum().item() > 100 else scores - 1


def test_an_export_that_computes_something_else_is_not_kept(own_folder: Path) -> None:
    pytest.importorskip("openvino")
    trainer = Trainer(Untraceable(), photographs(), num_epochs=1, threads=1)
    with pytest.raises(ModelFileError, match="Nothing was written"):
        trainer.export(own_folder / "net.xml")
    assert list(own_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("net.keras", "cannot become a .keras file"),
        ("net.py", "to .pt2"),
        ("net.pt", "an export ends in"),
        ("net", "ends in"),
    ],
)
def test_what_a_module_cannot_become_is_refused(trainer: Trainer, name: str, problem: str, own_folder: Path) -> None:
    with pytest.raises(UsageError, match=problem):
        trainer.export(own_folder / name)


def test_an_archive_of_pytorch_is_opened_only_by_its_own_name(trainer: Trainer, own_folder: Path) -> None:
    """To open one may run what is in it."""
    trainer.export(own_folder / "net.pt2")
    with pytest.raises(ModelFileError, match="holds a program"), Predictor(own_folder):
        pass

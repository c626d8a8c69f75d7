"""What the export tests share: folders of their own, and a small trained run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests here share their networks

from ringlet import Trainer
from ringlet.config import RunConfig
from ringlet.libraries import switch_telemetry_off
from ringlet.training.run_directory import CONFIG, MODEL

switch_telemetry_off()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with a cache of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.delenv("RINGLET_KERNELS", raising=False)
    return folder


def train(folder: Path, **options: object) -> Path:
    """A run directory without its log: configuration and model."""
    folder.mkdir()
    config = RunConfig(**options)
    (folder / CONFIG).write_text(config.to_toml(), encoding="utf-8")
    trainer = Trainer(config=config)
    trainer.fit()
    trainer.save(folder / MODEL)
    return folder


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of the built-in digits that knows them."""
    os.environ["RINGLET_TUNING"] = "off"
    return train(tmp_path_factory.mktemp("runs") / "digits", model="vgg1bn", dataset="digits", num_epochs=2)


@pytest.fixture(scope="session")
def shapes_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A U-Net that has seen a few shapes."""
    os.environ["RINGLET_TUNING"] = "off"
    options = {"model": "unet", "model_options": {"levels": 2, "width": 4}, "dataset": "shapes", "num_samples": 48}
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    return train(folder, **options, image_size=(32, 32), batch_size=8, num_epochs=3)

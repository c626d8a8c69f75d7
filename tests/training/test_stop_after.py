"""``stop_after``: a run that leaves early and resumes later learns what one in one piece learns."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ringlet import RunConfig
from ringlet.models.files import load_model_file
from ringlet.training.session import Session

OPTIONS = {"model": "simplemlp", "num_epochs": 3, "steps_per_epoch": 3, "batch_size": 32, "kernels": "reference"}
OPTIONS |= {"schedule": "cosine", "threads": 1}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGLET_TUNING", "off")


def test_the_schedule_stays_that_of_all_epochs_and_the_bits_are_the_same() -> None:
    config = RunConfig(**OPTIONS, run_dir="parts", resume="auto")
    first = Session.open(config.replace(stop_after=1)).run()
    assert first.num_epochs == 1
    assert first.stopped == "left after epoch 1 of 3, as stop_after = 1 says"
    assert "stop_after" not in tomllib.loads(Path("parts/config.toml").read_text())["training"]
    assert Session.open(config).run().stopped is None
    Session.open(RunConfig(**OPTIONS, run_dir="whole")).run()
    parts, whole = (load_model_file(f"{name}/model.safetensors").tensors for name in ("parts", "whole"))
    assert all((parts[name] == whole[name]).all() for name in whole)


def test_a_run_that_has_come_further_stays_where_it_is() -> None:
    config = RunConfig(**OPTIONS, run_dir="run", resume="auto")
    Session.open(config.replace(stop_after=2)).run()
    result = Session.open(config.replace(stop_after=1)).run()
    assert (result.num_epochs, len(result.epochs)) == (0, 2)

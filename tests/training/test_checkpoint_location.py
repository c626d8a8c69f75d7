"""Checkpoints of a run outside of its directory: in another folder, or in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ringlet import Trainer
from ringlet.checkpoint import CheckpointStore
from ringlet.cli.main import main
from ringlet.io.storage import place_of
from ringlet.launch.restarts import CheckpointWatch

SMALL = ["--model", "simplemlp", "--steps-per-epoch", "2", "--local-batch-size", "8", "--kernels", "reference"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("location", ["elsewhere/kept", "memory://bucket-{name}/run"])
def test_a_run_keeps_and_finds_its_checkpoints_there(location: str, tmp_path: Path, capsys) -> None:
    place = location.format(name=tmp_path.name)
    words = ["train", *SMALL, "--num-epochs", "2", "--checkpoint.location", place, "--checkpoint-every", "epoch"]
    assert main([*words, "--run-dir", "run"]) == 0, capsys.readouterr().err
    assert not Path("run/checkpoints").exists()
    assert CheckpointStore(place).steps() == [2, 4]
    assert main(["resume", "run", "--num-epochs", "3"]) == 0, capsys.readouterr().err
    assert CheckpointStore(place).steps() == [4, 6]
    capsys.readouterr()
    assert main(["checkpoints", "run", "--json"]) == 0
    assert [row["step"] for row in json.loads(capsys.readouterr().out)["checkpoints"]] == [4, 6]
    assert main([*words, "--num-epochs", "3", "--run-dir", "whole", "--checkpoint-every", "never"]) == 0
    one, two = Path("run/model.safetensors").read_bytes(), Path("whole/model.safetensors").read_bytes()
    assert one == two


def test_resuming_from_an_earlier_one_brings_the_later_ones_home(tmp_path: Path, capsys) -> None:
    place = f"memory://bucket-{tmp_path.name}/run"
    words = [*SMALL, "--checkpoint.location", place, "--checkpoint-every", "epoch", "--keep", "0"]
    assert main(["train", *words, "--num-epochs", "3", "--run-dir", "run"]) == 0, capsys.readouterr().err
    assert main(["resume", "run", "--at", "epoch:1", "--num-epochs", "2"]) == 0, capsys.readouterr().err
    assert CheckpointStore(place).steps() == [2, 4]
    assert CheckpointStore("run/superseded/1/checkpoints").steps() == [4, 6]


def test_a_trainer_resumes_from_there(tmp_path: Path) -> None:
    options = {"model": "simplemlp", "dataset": "digits", "steps_per_epoch": 2, "local_batch_size": 8}
    options |= {"run_dir": "run", "checkpoint.location": f"memory://bucket-{tmp_path.name}/trainer"}
    Trainer(**options).fit(2, resume="auto")
    second = Trainer(**options)
    second.fit(3, resume="auto")
    assert second.progress.num_steps == 6
    whole = Trainer(**{**options, "run_dir": "other", "checkpoint.location": None})
    whole.fit(3)
    np.testing.assert_array_equal(second.replica.parameters.flat, whole.replica.parameters.flat)


def test_restarts_see_progress_there(tmp_path: Path) -> None:
    place = f"memory://bucket-{tmp_path.name}/watched"
    watch = CheckpointWatch(place_of(place))
    before = watch.token()
    options = {"model": "simplemlp", "dataset": "digits", "steps_per_epoch": 1, "local_batch_size": 8}
    Trainer(**options, run_dir="run", **{"checkpoint.location": place}).fit(1, resume="auto")
    assert before == frozenset()
    assert len(watch.token()) == 1

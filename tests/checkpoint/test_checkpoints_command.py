"""``ringlet checkpoints``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_samples import make_checkpoint

from ringlet.checkpoint import CheckpointStore
from ringlet.cli.main import main

Fill = Callable[..., CheckpointStore]


def test_lists_steps_epochs_sizes_and_the_best(filled: Fill, capsys: pytest.CaptureFixture[str]) -> None:
    run = filled(10, 25).path.parent
    assert main(["checkpoints", str(run)]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    rows = [row for row in rows if row]
    assert rows[0] == ["Step", "Epoch", "Size", "Age", "Best", "State"]
    assert [(row[0], row[1], row[4], row[5]) for row in rows[1:]] == [("10", "1", "best", "ok"), ("25", "2", "", "ok")]


def test_damage_is_named_and_gives_exit_code_1(filled: Fill, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(10, 20, 30)
    (store.directory(20) / "model.safetensors").write_bytes(b"")
    assert main(["checkpoints", str(store.path.parent)]) == 1
    told = capsys.readouterr()
    assert "damaged: model.safetensors has 0 bytes" in told.out
    assert "1 of 3 cannot be used" in told.err


def test_prints_json(filled: Fill, capsys: pytest.CaptureFixture[str]) -> None:
    store = filled(10, 20)
    (store.directory(20) / "manifest.json").unlink()
    assert main(["checkpoints", str(store.path.parent), "--json"]) == 1
    good, damaged = json.loads(capsys.readouterr().out)["checkpoints"]
    assert good["step"] == 10
    assert good["epoch"] == 1
    assert good["best"] is True
    assert good["problem"] is None
    assert good["path"] == str(store.directory(10))
    assert good["num_bytes"] == sum(file.stat().st_size for file in store.directory(10).iterdir())
    assert damaged["problem"] == "manifest.json is missing"
    assert damaged["epoch"] is None


def test_accepts_the_directory_of_checkpoints_itself(filled: Fill, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", str(filled(10).path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["checkpoints"]) == 1


def test_a_run_without_checkpoints_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", str(tmp_path)]) == 0
    assert "holds no checkpoints" in capsys.readouterr().err


def test_a_run_that_does_not_exist_is_an_error_of_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoints", str(tmp_path / "none")]) == 2
    assert "is not a directory" in capsys.readouterr().err


def test_what_a_file_says_reaches_no_terminal_raw(store: CheckpointStore, capsys: pytest.CaptureFixture[str]) -> None:
    written = make_checkpoint(1)
    written.training.update(progress=["\x1b[31m"], best_step="\x1b[31m")
    store.write(written)
    (store.path / "step-00000002").mkdir()
    (store.path / "step-00000002" / "\x1b[31m").symlink_to("x")
    assert main(["checkpoints", str(store.path.parent)]) == 1
    assert "\x1b" not in capsys.readouterr().out

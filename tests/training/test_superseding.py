"""Resuming from an earlier checkpoint loses nothing: what came later is kept, told of, and can be resumed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringlet import RunConfig, Trainer
from ringlet.checkpoint import Checkpoint, CheckpointStore, manifest
from ringlet.errors import CheckpointError, UsageError
from ringlet.optim import SGD
from ringlet.training.session import Session

OPTIONS: dict[str, Any] = {
    "model": "vgg1dobn",
    "dataset": "digits",
    "num_epochs": 4,
    "steps_per_epoch": 5,
    "local_batch_size": 8,
    "checkpoint_every": "1 epochs",
    "keep": 0,
    "lr_schedulers": ("model_checkpoint",),
    "evaluate": False,
    "run_dir": "run",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four epochs with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Session.open(RunConfig(**OPTIONS)).run()
        return folder / "run"


@pytest.fixture(autouse=True)
def _copy(finished: Path) -> None:
    shutil.copytree(finished, "run")


def resume(point: str, **changes: Any) -> list[str]:
    said: list[str] = []
    session = Session.open(RunConfig(**{**OPTIONS, "resume": point, **changes}), say=said.append)
    said += session.remarks
    session.run()
    return said


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_cut_off_right_after_it_resumed_has_lost_nothing(finished: Path) -> None:
    said: list[str] = []
    session = Session.open(RunConfig(**OPTIONS, resume="epoch:1"), say=said.append)

    def cut(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.run([cut])
    assert "resuming from step 5 supersedes the checkpoints of steps 10, 15, 20" in said[0]
    assert "ringlet resume run/superseded/1" in said[0]
    before, kept = files(finished), files(Path("run/superseded/1"))
    names = ("config.toml", "events.ndjson", "model.safetensors", "best.safetensors")
    assert {name: kept[name] for name in names} == {name: before[name] for name in names}
    later = {name: data for name, data in before.items() if name.startswith("checkpoints/") and "00000005" not in name}
    assert {name: data for name, data in kept.items() if name.startswith("checkpoints/")} == later
    assert Path("run/model.safetensors").read_bytes() == before["model.safetensors"]


def test_what_was_superseded_can_be_resumed(finished: Path) -> None:
    resume("5", num_epochs=2)
    back = Session.open(RunConfig(**OPTIONS | {"run_dir": "run/superseded/1"}, resume="auto"))
    assert back.continuation is not None
    assert back.continuation.step == 20
    assert back.run().num_steps == 0
    again = resume("5", num_epochs=2)
    assert "run/superseded/2" in again[-1]
    assert CheckpointStore("run/superseded/1/checkpoints").steps() == [10, 15, 20]


def test_resuming_from_the_newest_supersedes_nothing() -> None:
    assert resume("auto") == []
    assert not Path("run/superseded").exists()


def make_newer(folder: Path) -> None:
    """Give a checkpoint the next format, whole and with a right checksum."""
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    path.write_bytes(manifest._encode(content | {"format": manifest.FORMAT + 1, "something": "new"}))


def test_a_newer_format_is_not_damage_and_not_lost() -> None:
    newest = Path("run/checkpoints/step-00000020")
    make_newer(newest)
    before = files(newest)
    said = resume("auto")
    assert f"step-00000020 is too new: it has the newer format {manifest.FORMAT + 1}" in said[0]
    assert "Step 15 is used instead" in said[0]
    assert files(Path("run/superseded/1/checkpoints/step-00000020")) == before
    make_newer(Path("run/checkpoints/step-00000020"))
    with pytest.raises(CheckpointError, match=r"step-00000020 is too new"):
        resume("20")
    for step in (5, 10, 15):
        make_newer(Path(f"run/checkpoints/step-{step:08d}"))
    with pytest.raises(CheckpointError, match="take the version of Ringlet that wrote them"):
        resume("auto")


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "optimizer.safetensors", "history.ndjson"])
def test_what_the_storage_does_not_give_is_not_damage_and_not_lost(name: str) -> None:
    """A real error of a system call, in a real process."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    before = files(Path("run/checkpoints/step-00000020"))
    program = "from ringlet.cli.main import main; import sys; sys.exit(main(['resume', 'run', '--num-epochs', '4']))"
    place = Path("run/checkpoints/step-00000020", name).resolve()
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(place), "-e", "trace=read"]
    fault = "read:error=EIO" if name == "manifest.json" else "read:error=ESTALE"
    done = subprocess.run(
        [*strace, "-e", f"inject={fault}", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "step-00000020 is unreadable" in said
    assert "Step 15 is used instead" in said
    assert files(Path("run/superseded/1/checkpoints/step-00000020")) == before


def test_if_nothing_can_be_set_aside_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(Path("run"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(CheckpointError, match=r"No space left on device\. Nothing was changed"):
        resume("5")
    assert files(Path("run")) == before


class TestTrainer:
    def trainer(self, **changes: Any) -> Trainer:
        return Trainer(**{**{name: value for name, value in OPTIONS.items() if name != "evaluate"}, **changes})

    def test_other_options_are_refused(self) -> None:
        before = files(Path("run"))
        with pytest.raises(UsageError, match=r"other options: .*learning_rate.*0\.5 now"):
            self.trainer(learning_rate=0.5).fit(resume=5)
        assert files(Path("run")) == before

    def test_other_options_are_refused_in_a_directory_without_a_configuration_too(self) -> None:
        self.trainer(run_dir="own").fit(resume="auto")
        with pytest.raises(UsageError, match=r"other options: training\.seed"):
            self.trainer(run_dir="own", seed=5).fit(resume=5)

    @pytest.mark.parametrize("again", [SGD(learning_rate=0.2), SGD(learning_rate=0.1, momentum=0.5)])
    def test_another_optimizer_object_is_refused(self, again: SGD) -> None:
        self.trainer(run_dir="own", optimizer=SGD(learning_rate=0.1)).fit(resume="auto")
        with pytest.raises(UsageError, match=r"other options: optimizer\.(learning_rate|momentum): 0"):
            self.trainer(run_dir="own", optimizer=again).fit(resume=5)

    def test_the_new_trajectory_is_what_is_resumed_next(self) -> None:
        first = self.trainer()
        with pytest.warns(UserWarning, match="supersedes the checkpoints of steps 10, 15, 20"):
            first.fit(2, resume=5)
        assert CheckpointStore("run/checkpoints").steps() == [5, 10]
        assert CheckpointStore("run/superseded/1/checkpoints").steps() == [10, 15, 20]
        second = self.trainer()
        second.fit(2, resume="auto")
        assert second.progress.num_steps == 10
        assert (second.replica.parameters.flat == first.replica.parameters.flat).all()

    def test_the_log_of_the_run_is_continued(self, finished: Path) -> None:
        with pytest.warns(UserWarning, match="supersedes"):
            self.trainer().fit(resume=5)
        resume("auto", num_epochs=5)
        lines = [json.loads(line) for line in Path("run/events.ndjson").read_text().splitlines()]
        assert [line["epoch"] for line in lines if line["event"] == "epoch_finished"] == [1, 2, 3, 4, 5]
        assert [line["step"] for line in lines if line["event"] == "step_finished"] == list(range(1, 26))

    def test_a_second_fit_goes_on_in_its_run_and_notices_another_trainer(self) -> None:
        first, second = (self.trainer(run_dir="own") for _ in range(2))
        first.fit(1, resume="auto")
        first.fit(1)
        assert CheckpointStore("own/checkpoints").steps() == [5, 10]
        second.fit(3, resume="auto")
        with pytest.raises(CheckpointError, match="checkpoint of step 15, this trainer is at step 10"):
            first.fit(1)

    def test_checkpoints_of_another_run_are_not_taken_for_its_own(self) -> None:
        """A store that holds another state of the same step: both are kept, under different names."""
        trainer = self.trainer(run_dir=None, seed=7)
        said: list[str] = []
        trainer.keep_checkpoints(Path("run/checkpoints"), said.append)
        trainer.fit(1)
        assert "step-00000005 holds another state of step 5. It was renamed to step-00000005.superseded-" in said[0]
        stored: Checkpoint = CheckpointStore("run/checkpoints").load(5)
        assert stored.config["training"]["seed"] == 7


def test_a_run_directory_is_on_disk_before_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss after the rename must not leave a directory without its options."""
    done: list[tuple[str, str]] = []
    rename, fsync = os.rename, os.fsync

    def noted_fsync(descriptor: int) -> None:
        done.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def noted_rename(source: Any, target: Any, **keywords: Any) -> None:
        done.append(("rename", Path(target).name))
        rename(source, target, **keywords)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    Session.open(RunConfig(**OPTIONS | {"run_dir": "deep/er/new", "num_epochs": 0})).run()
    place = done.index(("rename", "new"))
    drafts = [name for kind, name in done[:place] if kind == "fsync" and name.startswith(".new-")]
    assert ("fsync", "config.toml") in done[:place]
    assert ("fsync", "events.ndjson") in done[:place]
    assert drafts
    assert ("fsync", "deep") in done[:place], "the name of a new parent"
    assert ("fsync", "er") in done[place:], "the new name itself"

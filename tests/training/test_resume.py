"""A run that was cut off anywhere and goes on ends like one that was not: same weights, optimizer, figures and log."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ringlet import RunConfig, Trainer
from ringlet.checkpoint import BackgroundWriter, CheckpointStore, manifest
from ringlet.errors import CheckpointError, ConfigError, DivergedError, UsageError
from ringlet.training.events import StepFinished
from ringlet.training.resuming import Continuation, with_same_steps
from ringlet.training.session import Session

OPTIONS: dict[str, Any] = {
    "model": "vgg1dobn",
    "dataset": "digits",
    "num_epochs": 4,
    "steps_per_epoch": 5,
    "local_batch_size": 8,
    "shards": 2,
    "kernels": "compiled",
    "optimizer": "adam",
    "lr_schedulers": ("warm_up", "early_stopping", "model_checkpoint"),
    "warm_up_start_lr": 0.0001,
    "early_stopping_patience": 50,
    "seed": 3,
    "evaluate": False,
}


def config(run_dir: str, **changes: Any) -> RunConfig:
    return RunConfig(**{**OPTIONS, "run_dir": run_dir, "checkpoint_every": "1 steps", "keep": 0, **changes})


def resumed(run_dir: str, point: str | int = "auto", **changes: Any) -> tuple[Session, list[str]]:
    """A run that resumes and was executed, and what it said."""
    said: list[str] = []
    session = Session.open(config(run_dir, resume=str(point), **changes), say=said.append)
    session.run()
    return session, said


def contents(checkpoints: Path) -> dict[str, dict[str, str]]:
    """Digests of the tensors of every checkpoint."""
    return {
        folder.name: {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}
        for folder in checkpoints.glob("step-*")
    }


def outcome(session: Session) -> dict[str, str]:
    """Digests of all that training changes."""
    values, optimizer = session.strategy.save()
    arrays = {"values": values, **optimizer}
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


def events(run_dir: str) -> list[dict[str, Any]]:
    """What happened, without times and without how often it was begun."""
    lines = [json.loads(line) for line in (Path(run_dir) / "events.ndjson").read_text().splitlines()]
    skipped = ("run_resumed", "epoch_resumed", "training_finished", "training_stopped", "model_saved")
    timeless = [{key: value for key, value in line.items() if "second" not in key and key != "time"} for line in lines]
    return [line | {"config": None} for line in timeless if line["event"] not in skipped]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], list[dict[str, Any]]]:
    """A run of 20 steps with a checkpoint of each."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        session = Session.open(config("run"))
        session.run()
        return folder / "run", outcome(session), events("run")


@pytest.mark.parametrize("step", range(1, 21))
def test_a_run_goes_on_from_any_step_to_the_same_end(step: int, undisturbed: Any) -> None:
    whole, digests, log = undisturbed
    shutil.copytree(whole, "run")
    session, _ = resumed("run", step)
    assert outcome(session) == digests
    assert events("run") == [line | {"config": None} for line in log]
    assert len(session.progress.epochs) == 4
    assert contents(Path("run/checkpoints")) == contents(whole / "checkpoints")
    later = contents(Path("run/superseded/1/checkpoints"))
    assert sorted(later) == [f"step-{number:08d}" for number in range(step + 1, 21)], (
        "so those above were written again"
    )


def test_auto_takes_the_newest_and_begins_anew_without_any(undisturbed: Any) -> None:
    whole, digests, _ = undisturbed
    shutil.copytree(whole, "run")
    for step in range(8, 21):
        shutil.rmtree(f"run/checkpoints/step-{step:08d}")
    session = Session.open(config("run", resume="auto"))
    assert session.continuation is not None
    assert session.continuation.step == 7
    session.run()
    assert outcome(session) == digests
    shutil.rmtree("run/checkpoints")
    again = Session.open(config("run", resume="auto"))
    with pytest.warns(UserWarning, match="no checkpoint found; starting from scratch"):
        again.run()
    assert outcome(again) == digests
    fresh = Session.open(config("other", resume="auto"))
    fresh.run()
    assert outcome(fresh) == digests
    assert events("run") == events("other") == undisturbed[2]


def test_the_speed_of_a_resumed_epoch_counts_only_what_was_trained_in_it(undisturbed: Any) -> None:
    shutil.copytree(undisturbed[0], "run")
    resumed("run", 8)
    lines = [json.loads(line) for line in Path("run/events.ndjson").read_text().splitlines()]
    finished = [line for line in lines if line["event"] == "epoch_finished"]
    trained = [line["samples_per_second"] * line["seconds"] for line in finished]
    assert trained == pytest.approx([80, 32, 80, 80])  # epoch 2 went on after three of its five steps of 16 samples


def test_an_epoch_can_be_named(undisturbed: Any) -> None:
    whole, digests, _ = undisturbed
    shutil.copytree(whole, "run")
    for step in (5, 10):
        shutil.rmtree(f"run/checkpoints/step-{step:08d}")
    resumed("run", 4, checkpoint_every="epoch")
    assert CheckpointStore("run/checkpoints").steps() == [1, 2, 3, 4, 5, 10, 15, 20]
    session, _ = resumed("run", "epoch:2")
    assert session.continuation is not None
    assert session.continuation.step == 10
    assert outcome(session) == digests
    with pytest.raises(CheckpointError, match="no good checkpoint of the end of epoch 9"):
        Session.open(config("run", resume="epoch:9"))


def test_a_damaged_checkpoint_is_told_and_an_older_one_used(undisturbed: Any) -> None:
    whole, digests, _ = undisturbed
    shutil.copytree(whole, "run")
    path = Path("run/checkpoints/step-00000020/model.safetensors")
    data = bytearray(path.read_bytes())
    data[-5] ^= 16
    path.write_bytes(data)
    session, said = resumed("run")
    assert any(
        "step-00000020 is damaged" in remark and "Step 19 is used instead" in remark for remark in session.remarks
    )
    assert outcome(session) == digests
    assert "supersedes the checkpoints of step 20" in said[0]
    assert Path("run/superseded/1/checkpoints/step-00000020/model.safetensors").read_bytes() == data


def test_more_epochs_may_follow_but_not_another_run(undisturbed: Any) -> None:
    shutil.copytree(undisturbed[0], "run")
    result = Session.open(config("run", resume="auto", num_epochs=5)).run()
    assert len(result.epochs) == 5
    assert result.num_steps == 5
    with pytest.raises(UsageError, match=r"other options: .*seed: 3 before, 4 now"):
        Session.open(config("run", resume="auto", seed=4))


def test_a_finished_or_stopped_run_has_nothing_left_to_do(undisturbed: Any) -> None:
    shutil.copytree(undisturbed[0], "run")
    assert Session.open(config("run", resume="auto")).run().num_steps == 0
    stopping = {"lr_schedulers": ("stop_at_loss",), "stop_at_loss_threshold": 100.0}
    first = Session.open(config("stopped", **stopping)).run()
    assert first.stopped is not None
    again = Session.open(config("stopped", **stopping, resume="auto")).run()
    assert again.num_steps == 0
    assert again.stopped == first.stopped


def test_resuming_needs_a_run(undisturbed: Any) -> None:
    with pytest.raises(UsageError, match="holds no run to resume from"):
        Session.open(config("nothing", resume="7"))
    with pytest.raises(UsageError, match="resume needs the run directory"):
        Session.open(RunConfig(**OPTIONS, resume="auto"))
    shutil.copytree(undisturbed[0], "run")
    with pytest.raises(CheckpointError, match="77"):
        Session.open(config("run", resume="77"))


def test_checkpoints_without_the_optimizer_are_smaller_and_say_so() -> None:
    Session.open(config("run", checkpoint_optimizer=False, num_epochs=1)).run()
    assert not list(Path("run/checkpoints").glob("*/optimizer.safetensors"))
    session, _ = resumed("run", 3, checkpoint_optimizer=False, num_epochs=1)
    assert any("the optimizer starts from scratch" in remark for remark in session.remarks)


def test_only_the_newest_and_the_best_are_kept() -> None:
    Session.open(config("run", checkpoint_every="2 steps", keep=2)).run()
    steps = CheckpointStore("run/checkpoints").steps()
    assert steps[-2:] == [18, 20]
    assert len(steps) <= 3
    assert all(step in (5, 10, 15) for step in steps[:-2])


@pytest.mark.parametrize(
    ("seconds", "share", "steps"), [(0.0, 1e9, [5, 10, 15, 20]), (1e9, 1e9, [20]), (0.0, 1e-12, [5, 20])]
)
def test_by_default_epochs_are_saved_if_enough_time_has_passed_for_their_cost(
    seconds: float, share: float, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringlet.training.checkpointing.AUTO_SECONDS", seconds)
    monkeypatch.setattr("ringlet.training.checkpointing.AUTO_SHARE", share)
    monkeypatch.setattr(BackgroundWriter, "busy", False)
    Session.open(config("run", checkpoint_every="auto", lr_schedulers=())).run()
    assert CheckpointStore("run/checkpoints").steps() == steps


def test_never_writes_none() -> None:
    Session.open(config("run", checkpoint_every="never")).run()
    assert not Path("run/checkpoints").exists()


def test_a_trainer_goes_on_by_itself() -> None:
    options = {key: value for key, value in OPTIONS.items() if key != "evaluate"} | {"run_dir": "run"}

    class CutError(Exception):
        pass

    def cut(event: Any) -> None:
        if isinstance(event, StepFinished) and event.step == 13:
            raise CutError

    broken = Trainer(**options, checkpoint_every="3 steps", callbacks=[cut])
    with pytest.raises(CutError):
        broken.fit(resume="auto")
    going_on = Trainer(**options, checkpoint_every="3 steps")
    history = going_on.fit(resume="auto")
    whole = Trainer(**{**options, "run_dir": None})
    assert history.epochs == whole.fit().epochs
    assert (going_on.replica.parameters.flat == whole.replica.parameters.flat).all()
    with pytest.raises(ConfigError, match="resume needs run_dir"):
        whole.fit(resume="auto")


def test_a_bad_step_is_skipped_if_asked_for() -> None:
    def poisoned(session: Session, steps: set[int]) -> Session:
        original = session.replica.loss_and_gradients

        def compute(*arguments: Any, **keywords: Any) -> Any:
            output = original(*arguments, **keywords)
            if keywords["step"] in steps and keywords["shard"] == 1:
                session.replica.gradients.views["dense1.weight"][0, 0] = float("nan")
            return output

        session.replica.loss_and_gradients = compute  # type: ignore[method-assign]
        return session

    session = poisoned(Session.open(config("run", on_nan="skip")), {4, 9})
    result = session.run()
    log = [json.loads(line) for line in Path("run/events.ndjson").read_text().splitlines()]
    skipped = [line for line in log if line["event"] == "step_skipped"]
    assert [line["step"] for line in skipped] == [4, 9]
    assert "gradient of 'dense1.weight' is not finite in shard 1 of 2" in skipped[0]["problem"]
    assert result.num_steps == 20
    assert session.progress.num_skipped == 2
    with pytest.raises(DivergedError, match=r"\(update 4\).*'dense1.weight' is not finite in shard 1"):
        poisoned(Session.open(config("other")), {4}).run()


@pytest.mark.parametrize(
    ("options", "num_workers", "kept", "num_remarks"),
    [
        ({}, 2, 256, 0),  # the usual batch may be another one: that of the checkpoint counts
        ({}, 4, 256, 1),
        ({"local_batch_size": 128}, 2, None, 0),
        ({"local_batch_size": 128}, 4, 256, 1),
        ({"global_batch_size": 256}, 4, 256, 0),
        ({"shards": 4}, 2, None, 0),
    ],
)
def test_a_run_goes_on_with_the_global_batch_of_its_checkpoint(options, num_workers, kept, num_remarks):
    continuation = Continuation(7, 1, 256, num_workers=2, num_shards=2, events_bytes=0, checkpoint=None)
    config, remarks = with_same_steps(RunConfig(**options), continuation, num_workers)
    assert (config.training.global_batch_size, len(remarks)) == (kept, num_remarks)


def test_a_history_of_any_length_is_kept() -> None:
    """Twice as many epochs as a manifest could hold."""
    options = {"model": "vgg1dobn", "dataset": "digits", "steps_per_epoch": 1, "local_batch_size": 8, "run_dir": "run"}
    trainer = Trainer(**options)
    trainer.fit(1, resume="auto")
    row = trainer.progress.epochs[0]
    trainer.progress.epochs = [{name: value + epoch for name, value in row.items()} for epoch in range(140_000)]
    trainer.progress.num_epochs = 140_000
    trainer.fit(1)
    again = Trainer(**options)
    assert len(again.fit(140_001, resume="auto").epochs) == 140_001
    assert again.progress.epochs == trainer.progress.epochs


def test_checkpoints_of_the_first_format_are_resumed(undisturbed: Any) -> None:
    """Their manifest held the history."""
    whole, digests, _ = undisturbed
    shutil.copytree(whole, "run")
    for folder in Path("run/checkpoints").iterdir():
        content = json.loads((folder / "manifest.json").read_text())
        del content["sha256"]
        history = folder / "history.ndjson"
        rows = [json.loads(line) for line in history.read_text().splitlines()] if history.exists() else []
        history.unlink(missing_ok=True)
        content["files"].pop("history.ndjson", None)
        content["training"]["progress"]["epochs"] = rows
        del content["training"]["optimizer"]
        (folder / "manifest.json").write_bytes(manifest._encode(content | {"format": 1}))
    session, _ = resumed("run", 13)
    assert outcome(session) == digests
    assert len(session.progress.epochs) == 4

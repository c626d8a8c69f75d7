"""A disk that refuses: it is said, old files stay as they were, the run goes on, and the next write is tried."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import NoReturn

import pytest

from ringlet.checkpoint import BackgroundWriter, Checkpoint, CheckpointStore
from ringlet.errors import CheckpointError, FileWriteError, ModelFileError
from ringlet.io.disk import Appender, Saving, write_whole
from ringlet.models.files import load_model_file
from ringlet.training.events import EpochStarted, EventLog, StepFinished, TrainingStopped
from ringlet.training.session import Session

NUMBERS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ESTALE)
every_number = pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.__getitem__)


def refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


class Disk:
    """Takes everything until it is told to take no more than a few bytes of each write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, num_bytes: int = 5) -> None:
        self.is_full, self._number, self._num_bytes = False, number, num_bytes
        self._write, self._fsync, self._truncate = os.write, os.fsync, os.ftruncate
        self.can_cut = True
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(os, "ftruncate", self.truncate)
        self._replace = Path.replace
        monkeypatch.setattr(Path, "replace", lambda path, target: self.replace(path, target))

    def write(self, descriptor: int, data: bytes) -> int:
        if not self.is_full or descriptor < 3:
            return self._write(descriptor, data)
        if len(data) <= self._num_bytes:
            refuse(self._number)
        return self._write(descriptor, data[: len(data) - self._num_bytes])

    def fsync(self, descriptor: int) -> None:
        refuse(self._number) if self.is_full else self._fsync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        refuse(self._number) if self.is_full and not self.can_cut else self._truncate(descriptor, size)

    def replace(self, path: Path, target: Path) -> None:
        refuse(self._number) if self.is_full else self._replace(path, target)


def records(path: Path = Path("out/events.ndjson")) -> list[dict]:
    """Every line is whole."""
    text = path.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


# -- the mechanism ----------------------------------------------------------------------------------------------------
@every_number
def test_a_record_is_written_whole_or_leaves_no_trace(tmp_path, monkeypatch, number):
    disk = Disk(monkeypatch, number)
    file = Appender(tmp_path / "file")
    file.append(b"first\n")
    disk.is_full = True
    for disk.can_cut in (False, True):
        with pytest.raises(FileWriteError, match=os.strerror(number)):
            file.append(b"second record\n")
        assert file.size == 6
    assert (tmp_path / "file").read_bytes() == b"first\n"
    disk.can_cut = False
    with pytest.raises(FileWriteError):
        file.append(b"third record\n")
    assert (tmp_path / "file").read_bytes() != b"first\n", "nothing can be wiped now"
    disk.is_full = False
    file.append(b"fourth\n")
    assert (tmp_path / "file").read_bytes() == b"first\nfourth\n"
    assert file.size == 13
    file.close()


def test_a_stale_file_is_opened_again(tmp_path, monkeypatch):
    disk = Disk(monkeypatch, errno.ESTALE)
    opened: list[object] = []
    file, really_open = Appender(tmp_path / "file"), os.open
    monkeypatch.setattr(os, "open", lambda *words: opened.append(words) or really_open(*words))
    file.append(b"first\n")
    disk.is_full, disk.can_cut = True, False
    with pytest.raises(FileWriteError):
        file.append(b"second record\n")
    disk.is_full = False
    file.append(b"third\n")
    assert (tmp_path / "file").read_bytes() == b"first\nthird\n"
    assert opened
    file.close()


@every_number
def test_a_file_is_replaced_whole_or_stays(tmp_path, monkeypatch, number):
    (tmp_path / "own").mkdir()
    disk, target = Disk(monkeypatch, number), tmp_path / "own" / "file"
    write_whole(target, b"old")
    disk.is_full = True
    with pytest.raises(FileWriteError) as caught:
        write_whole(target, b"new content")
    full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    assert ("about 11 bytes are needed, " in str(caught.value)) == full
    assert [(path.name, path.read_bytes()) for path in target.parent.iterdir()] == [("file", b"old")]


def test_an_outage_is_told_once_and_so_is_its_end():
    said: list[str] = []
    saving = Saving(said.append)

    def fail() -> None:
        raise OSError(errno.ENOSPC, "no room")

    assert [saving.attempt("file", write) for write in (fail, fail, bool, bool, fail)] == [False] * 2 + [True] * 2 + [
        False
    ]
    assert [line.split(". ")[-1] for line in said] == [
        "The run goes on; the next file is tried as planned",
        "the file can be written again",
        "The run goes on; the next file is tried as planned",
    ]
    saving.check()
    saving.attempt("file", fail, is_needed=True)
    with pytest.raises(FileWriteError, match="no room"):
        saving.check()


def test_a_mistake_is_no_refusal():
    with pytest.raises(ZeroDivisionError):
        Saving(print).attempt("file", lambda: 1 / 0)


# -- the event log ----------------------------------------------------------------------------------------------------
@every_number
@pytest.mark.parametrize("can_cut", [True, False], ids=["cut at once", "cut later"])
def test_the_log_has_whole_lines_and_names_its_gap(tmp_path, monkeypatch, number, can_cut):
    said: list[str] = []
    disk = Disk(monkeypatch, number)
    disk.can_cut = can_cut
    log = EventLog(tmp_path / "events", say=said.append)
    log(EpochStarted(1, 1, 9, 9))
    before = log.position()
    disk.is_full = True
    for step in range(3):
        log(StepFinished(1, step, step, 8, 0.1, {"loss": 1.0}, {}))
    assert log.position() == before
    disk.is_full = False
    log(TrainingStopped(1, 3, "enough"))
    log.close()
    found = records(tmp_path / "events")
    assert [record["event"] for record in found] == ["epoch_started", "events_lost", "training_stopped"]
    assert found[1]["count"] == 3
    assert os.strerror(number) in found[1]["reason"]
    assert len(said) == 2
    assert log.path.stat().st_size > before


def test_a_gap_at_the_end_is_told_in_the_log_or_at_least_said(tmp_path, monkeypatch):
    said: list[str] = []
    disk = Disk(monkeypatch, errno.ENOSPC)
    for stays in (False, True):
        log = EventLog(tmp_path / "events", say=said.append, cut_at=0)
        disk.is_full = True
        log(TrainingStopped(1, 3, "enough"))
        disk.is_full = stays
        log.close()
        if not stays:
            assert [record["event"] for record in records(tmp_path / "events")] == ["events_lost"]
    assert said[-1].startswith("1 events are missing in the log: cannot write ")


def test_half_a_line_of_a_killed_writer_is_cut_off(tmp_path):
    path = tmp_path / "events"
    path.write_text('{"event": "a"}\n{"event": "b", "half')
    log = EventLog(path)
    log(TrainingStopped(1, 3, "enough"))
    log.close()
    assert [record["event"] for record in records(path)] == ["a", "training_stopped"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints are on disk, or not, before training goes on: which of them meets a full disk is then known."""
    submit = BackgroundWriter.submit

    def submit_and_wait(self: BackgroundWriter, checkpoint: Checkpoint) -> None:
        submit(self, checkpoint)
        self.finish_within(60)

    monkeypatch.setattr(BackgroundWriter, "submit", submit_and_wait)


# -- runs -------------------------------------------------------------------------------------------------------------
OPTIONS = {
    "run_dir": "out",
    "model": "simplemlp",
    "num_epochs": 4,
    "checkpoint_every": "1 epochs",
    "lr_schedulers": ("model_checkpoint",),
    "history_file": "history.json",
    "timeline": "trace.json",
    "keep": 0,
}


def run_with(config, disk: Disk, epochs: set[int], said: list[str]):
    """A run whose disk is full while it does these epochs, up to the end if the last is among them."""
    session = Session.open(config, say=said.append)

    def switch(event: object) -> None:
        if isinstance(event, EpochStarted):
            disk.is_full = event.epoch in epochs

    try:
        return session.run([switch])
    finally:
        disk.is_full = False


@every_number
@pytest.mark.usefixtures("at_once")
def test_a_run_outlives_a_disk_that_refuses_for_a_while(small_config, monkeypatch, number):
    expected = Session.open(small_config(**OPTIONS | {"run_dir": "undisturbed"})).run()
    disk, said = Disk(monkeypatch, number), []
    result = run_with(small_config(**OPTIONS), disk, {2, 3}, said)
    assert result.epochs == expected.epochs
    names = ("model.safetensors", "best.safetensors")
    assert all((Path("out") / name).read_bytes() == (Path("undisturbed") / name).read_bytes() for name in names)
    told = " ".join(said)
    for name in ("model.safetensors", "checkpoint", "line of events.ndjson"):
        assert told.count(f"the next {name} is tried as planned") == 1, said
        assert told.count(f"{name} can be written again") == 1, said
    assert 4 in [record.get("epoch") for record in records() if record["event"] == "epoch_finished"]
    lost = sum(record["count"] for record in records() if record["event"] == "events_lost")
    gaps = sum(record["event"] == "events_lost" for record in records())
    assert len(records()) - gaps + lost == len(records(Path("undisturbed/events.ndjson")))
    steps = CheckpointStore(Path("out/checkpoints")).steps()
    assert steps == [4, 16]
    assert not list(Path("out").rglob(".*partial*"))


@every_number
@pytest.mark.usefixtures("at_once")
def test_a_run_goes_on_from_a_checkpoint_after_the_gap(small_config, monkeypatch, number):
    """The position in the log that a checkpoint holds is that of whole lines: cut there, the log is whole again."""
    disk, said = Disk(monkeypatch, number), []
    disk.can_cut = False
    run_with(small_config(**OPTIONS), disk, {2}, said)
    before = records()
    for path in Path("out/checkpoints").glob("step-00000016"):
        path.rename("later")
    Session.open(small_config(**OPTIONS, resume="auto")).run()
    found = records()
    steps = [record["step"] for record in found if record["event"] == "step_finished"]
    assert steps == sorted(set(steps))
    assert steps[-1] == 16
    assert [record["count"] for record in found if record["event"] == "events_lost"] == [
        record["count"] for record in before if record["event"] == "events_lost"
    ]


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_stays_full_is_an_error_in_the_end(small_config, monkeypatch):
    disk, said = Disk(monkeypatch, errno.ENOSPC), []
    with pytest.raises(FileWriteError) as caught:
        run_with(small_config(**OPTIONS), disk, {3, 4}, said)
    message = str(caught.value)
    names = ("out/model.safetensors", "out/best.safetensors", "step-00000016", "history.json", "trace.json")
    assert all(name in message for name in names), message
    assert message.count("bytes are needed, ") == 5
    assert CheckpointStore(Path("out/checkpoints")).newest().step == 8
    assert set(load_model_file("out/model.safetensors").tensors)
    assert not Path("history.json").exists()


@pytest.mark.parametrize("interval", ["never", "1 epochs"])
def test_what_alone_is_missing_keeps_its_kind_of_error(small_config, monkeypatch, interval):
    monkeypatch.setattr("ringlet.io.disk.synchronise", lambda _: refuse(errno.EIO))
    with pytest.raises(ModelFileError, match=r"cannot write model file out/model\.safetensors: Input/output error"):
        run_with(small_config(run_dir="out", checkpoint_every=interval), Disk(monkeypatch, errno.EIO), set(), [])


def test_a_trainer_ends_with_an_error_if_its_last_checkpoint_is_not_written(small_trainer, monkeypatch):
    trainer = small_trainer()
    trainer.keep_checkpoints(Path("checkpoints"), lambda _: None)
    monkeypatch.setattr("ringlet.checkpoint.atomic.synchronise", lambda _: refuse(errno.EIO))
    with pytest.raises(CheckpointError, match="Input/output error"):
        trainer.fit()

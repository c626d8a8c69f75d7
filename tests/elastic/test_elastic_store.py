"""Where commits go that outlive their ranks, in one process; jobs that are killed are in tests/horovod."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringlet.elastic import store
from ringlet.elastic.store import DirectoryStore, JobStore, open_store
from ringlet.launch import commit_folder
from ringlet.launch.local import PlainProcesses
from ringlet.launch.plan import LaunchPlan
from ringlet.launch.restarts import COMMITS_VARIABLE, JOB_COMMITS_VARIABLE
from ringlet.named import session


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A world of one rank, whose temporary files are elsewhere."""
    monkeypatch.setattr(commit_folder.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    session.init()
    yield
    session.shutdown()


def values(step: int) -> dict[str, Any]:
    return {"step": step, "weights": np.full(3, step, np.float32)}


def test_the_newest_commit_comes_back_and_no_other_is_kept(tmp_path: Path) -> None:
    first = JobStore(tmp_path / "job", "state-1")
    assert first.read() is None
    for step in (1, 2, 3):
        first.write(lambda step=step: values(step))
    assert [path.name for path in (tmp_path / "job" / "state-1").iterdir()] == ["commit-00000003"]
    again = JobStore(tmp_path / "job", "state-1")
    found = again.read()
    assert found is not None
    assert (found["step"], found["weights"].tolist()) == (3, [3.0] * 3)
    again.write(lambda: values(4))
    assert [path.name for path in (tmp_path / "job" / "state-1").iterdir()] == ["commit-00000004"]


def test_what_the_folder_has_no_room_for_goes_to_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = JobStore(tmp_path / "job", "state-1")
    held.write(lambda: values(1))
    full = store.CheckpointError("no space")

    def refuse(*_arguments: Any) -> None:
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(held._commits[0], "write", refuse, raising=False)
        held.write(lambda: values(2))
    assert (tmp_path / "temporary" / "job" / "state-1" / "commit-00000002").exists()
    found = JobStore(tmp_path / "job", "state-1").read()
    assert found is not None
    assert found["step"] == 2
    commit_folder.remove(tmp_path / "job")
    assert not (tmp_path / "job").exists()
    assert not (tmp_path / "temporary" / "job").exists()


def test_a_state_that_cannot_be_kept_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = JobStore(tmp_path / "job", "state-1")
    with caplog.at_level(logging.WARNING, "ringlet"):
        held.write(lambda: {"thing": object()})
        held.write(lambda: {"thing": object()})
    (record,) = caplog.records
    assert "could not be kept for restarts" in record.getMessage()
    assert "builtins.object" in record.getMessage()


def test_a_folder_of_someone_else_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "elsewhere").mkdir()
    for place in (tmp_path / "job", tmp_path / "temporary" / "job"):
        place.symlink_to(tmp_path / "elsewhere")
    JobStore(tmp_path / "job", "state-1").write(lambda: values(1))
    assert "belongs to someone else" in caplog.text
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_program_the_user_and_the_job_may_say_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (COMMITS_VARIABLE, JOB_COMMITS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    assert open_store(None) is None
    monkeypatch.setenv(JOB_COMMITS_VARIABLE, str(tmp_path / "job"))
    assert isinstance(open_store(None), JobStore)
    monkeypatch.setenv(COMMITS_VARIABLE, str(tmp_path / "users"))
    assert isinstance(open_store(None), DirectoryStore)
    assert isinstance(open_store(tmp_path / "programs"), DirectoryStore)


def test_the_folder_of_a_job_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMITS_VARIABLE, raising=False)
    with commit_folder.commit_folder(LaunchPlan(2), PlainProcesses()) as variables:
        folder = Path(variables[JOB_COMMITS_VARIABLE])
        assert folder.is_dir()
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "state-1").mkdir()
    assert not folder.exists()
    monkeypatch.setenv(COMMITS_VARIABLE, os.devnull)
    with commit_folder.commit_folder(LaunchPlan(2), PlainProcesses()) as variables:
        assert variables == {}

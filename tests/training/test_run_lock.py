"""One job at a time in a run directory."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from ringlet import RunConfig, Trainer
from ringlet.cli.main import main
from ringlet.errors import UsageError
from ringlet.training import run_lock
from ringlet.training.run_lock import LOCK, RunLock, is_held
from ringlet.training.session import Session

SMALL: dict[str, Any] = {"num_epochs": 2, "steps_per_epoch": 2, "local_batch_size": 8, "evaluate": False}
HOLD = "import sys; from pathlib import Path; from ringlet.training.run_lock import RunLock; \
lock = RunLock.acquire(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"


@contextmanager
def other_process(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock until the block ends."""
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def leave_note(directory: Path, **changes: Any) -> None:
    """What a process leaves that could not say that it ended."""
    note = {"pid": 4242, "host": "elsewhere", "since": "2026-01-02 03:04:05 +0000", "boot": "b", "birth": "7"}
    note |= {"job": "", "restart": ""}
    (directory / LOCK).write_text(json.dumps(note | changes))


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


class TestLock:
    def test_a_second_process_is_told_who_has_it(self, tmp_path: Path) -> None:
        with other_process(tmp_path) as process:
            held = rf"in use by pid {process.pid} on host {socket.gethostname()} since "
            with pytest.raises(UsageError, match=held + r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"):
                RunLock.acquire(tmp_path)
            with pytest.raises(UsageError, match="in use by pid"):
                RunLock.acquire(tmp_path, break_lock=True)
            assert is_held(tmp_path) is True

    def test_a_killed_process_loses_it(self, tmp_path: Path) -> None:
        with other_process(tmp_path) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert (tmp_path / LOCK).read_text() != ""
        assert is_held(tmp_path) is False
        with RunLock.acquire(tmp_path):
            assert is_held(tmp_path) is True
        assert is_held(tmp_path) is False
        assert not (tmp_path / LOCK).exists()

    def test_a_process_that_is_just_ending_is_waited_for(self, tmp_path: Path) -> None:
        with other_process(tmp_path) as process:
            process.stdin.close()  # type: ignore[union-attr]
            RunLock.acquire(tmp_path, patience=60).release()

    def test_a_note_of_another_machine_is_believed_until_the_user_knows_better(self, tmp_path: Path) -> None:
        leave_note(tmp_path)
        with pytest.raises(UsageError, match=r"pid 4242 on host elsewhere since 2026-01-02 .*give --break-lock"):
            RunLock.acquire(tmp_path)
        assert is_held(tmp_path) is None
        with RunLock.acquire(tmp_path, break_lock=True):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()

    @pytest.mark.parametrize(
        ("noted", "now", "is_taken"),
        [
            (("77", ""), ("77", "1"), True),
            (("77", "1"), ("77", "2"), True),
            (("77", "1"), ("77", "1"), False),
            (("77", ""), ("78", "1"), False),
            (("", ""), ("", "1"), False),
        ],
    )
    def test_a_job_that_slurm_has_queued_again_has_ended(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: Any, now: Any, is_taken: bool
    ) -> None:
        leave_note(tmp_path, job=noted[0], restart=noted[1])
        for name, value in zip(("SLURM_JOB_ID", "SLURM_RESTART_COUNT"), now, strict=True):
            monkeypatch.setenv(name, value)
        with nullcontext() if is_taken else pytest.raises(UsageError, match="give --break-lock"):
            RunLock.acquire(tmp_path).release()

    @pytest.mark.parametrize("same", ["host", "boot"])
    def test_a_container_or_a_start_of_this_machine_is_not_another_machine(self, tmp_path: Path, same: str) -> None:
        here = {"host": socket.gethostname(), "boot": run_lock._boot()}
        leave_note(tmp_path, **{same: here[same]})
        RunLock.acquire(tmp_path).release()

    def test_without_locks_the_process_itself_is_looked_at(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with other_process(tmp_path) as process:
            monkeypatch.setattr(run_lock, "try_lock", lambda *_, **__: None)
            with pytest.raises(UsageError, match=f"in use by pid {process.pid}"):
                RunLock.acquire(tmp_path)
            assert is_held(tmp_path) is True
            note = json.loads((tmp_path / LOCK).read_text())
            leave_note(tmp_path, **note | {"birth": "1"})  # another process had this number
            assert is_held(tmp_path) is False
            RunLock.acquire(tmp_path).release()

    @pytest.mark.parametrize("text", ["", "null", "[]", '{"pid": "x"}', "{", "\x00" * 9000])
    def test_a_note_that_says_nothing_is_nobodys(self, tmp_path: Path, text: str) -> None:
        (tmp_path / LOCK).write_text(text)
        RunLock.acquire(tmp_path).release()

    def test_a_forked_child_does_not_give_it_away(self, tmp_path: Path) -> None:
        lock = RunLock.acquire(tmp_path)
        child = os.fork()
        if child == 0:
            lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert is_held(tmp_path) is True
        assert (tmp_path / LOCK).read_text() != ""
        lock.release()
        lock.release()

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("mine")
        (tmp_path / LOCK).symlink_to(tmp_path / "precious")
        with pytest.raises(UsageError, match="cannot be locked"):
            RunLock.acquire(tmp_path)
        assert (tmp_path / "precious").read_text() == "mine"

    def test_a_full_disk_does_not_matter_where_locks_work(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(run_lock, "_write", full)
        with RunLock.acquire(tmp_path):
            assert is_held(tmp_path) is True
        monkeypatch.setattr(run_lock, "try_lock", lambda *_, **__: None)
        with pytest.raises(UsageError, match="No space left"):
            RunLock.acquire(tmp_path)


class TestRuns:
    def test_a_live_job_is_refused_before_anything_changes(self) -> None:
        Session.open(RunConfig(**SMALL, run_dir="run", checkpoint_every="1 steps")).run()
        assert is_held(Path("run")) is False
        with other_process(Path("run")) as process:
            before = files(Path("run"))
            for point in ("auto", "1", "epoch:1"):
                with pytest.raises(UsageError, match=f"in use by pid {process.pid}"):
                    Session.open(RunConfig(**SMALL, run_dir="run", checkpoint_every="1 steps", resume=point))
                with pytest.raises(UsageError, match=f"in use by pid {process.pid}"):
                    Trainer(**SMALL, run_dir="run", checkpoint_every="1 steps").fit(resume=point)
            assert main(["resume", "run", "--num-epochs", "3"]) == 2
            assert files(Path("run")) == before

    def test_a_run_holds_the_lock_from_its_first_file_to_its_last(self) -> None:
        held = []

        def look(_: object) -> None:
            held.append(is_held(Path("run")))

        Session.open(RunConfig(**SMALL, run_dir="run")).run([look])
        Session.open(RunConfig(**SMALL | {"num_epochs": 3}, run_dir="run", resume="auto")).run([look])
        assert set(held) == {True}
        assert is_held(Path("run")) is False

    def test_a_run_that_is_refused_or_fails_lets_go(self) -> None:
        Session.open(RunConfig(**SMALL, run_dir="run")).run()
        with pytest.raises(UsageError, match="other options"):
            Session.open(RunConfig(**SMALL, run_dir="run", resume="auto", seed=9))
        assert is_held(Path("run")) is False

        def fail(_: object) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            Session.open(RunConfig(**SMALL | {"num_epochs": 3}, run_dir="run", resume="auto")).run([fail])
        assert is_held(Path("run")) is False

    def test_break_lock_is_for_one_time(self) -> None:
        Session.open(RunConfig(**SMALL, run_dir="run", break_lock=True)).run()
        leave_note(Path("run"))
        with pytest.raises(UsageError, match="give --break-lock"):
            Session.open(RunConfig(**SMALL, run_dir="run", resume="auto"))
        assert main(["resume", "run"]) == 2
        assert main(["resume", "run", "--break-lock"]) == 0

    def test_a_restarted_job_takes_over_from_a_machine_that_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Session.open(RunConfig(**SMALL, run_dir="run")).run()
        leave_note(Path("run"))
        monkeypatch.setattr("ringlet.training.resuming.current_attempt", lambda: 1)
        Session.open(RunConfig(**SMALL, run_dir="run", resume="auto")).run()


def test_of_many_processes_at_once_one_has_it(tmp_path: Path) -> None:
    """Each that gets it removes the file at its end, while others have opened it."""
    program = (
        "import os, sys; from pathlib import Path; from ringlet.errors import UsageError\n"
        "from ringlet.training.run_lock import RunLock\n"
        "folder = Path(sys.argv[1])\n"
        "for _ in range(40):\n"
        "    with RunLock.acquire(folder, patience=60):\n"
        "        os.close(os.open(folder / 'inside', os.O_CREAT | os.O_EXCL))\n"
        "        (folder / 'inside').unlink()\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(3)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]

"""A crash or an error at every single call that writes: the checkpoint before, or the new one, is there and whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_samples import content, make_checkpoint

from ringlet.checkpoint import CheckpointStore
from ringlet.errors import CheckpointError

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
CALLS = ("write", "ftruncate", "fsync", "rename", "renameat", "mkdir")
HOOKED = ("open", "write", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir", "listdir", "scandir")


def check_nothing_is_lost(path: Path) -> int:
    """The newest checkpoint is 1 or 2, whole; and after any of it, checkpoint 2 can be written."""
    said: list[str] = []
    store = CheckpointStore(path, say=said.append)
    found = store.newest()
    assert found is not None
    assert found.step in (1, 2)
    assert content(found) == content(make_checkpoint(found.step))
    assert content(store.load(1)) == content(make_checkpoint(1))
    store.write(make_checkpoint(2))
    assert content(store.load(2)) == content(make_checkpoint(2))
    assert sorted(entry.name for entry in path.iterdir()) == ["step-00000001", "step-00000002"]
    assert said == []
    return found.step


# -- in this process --------------------------------------------------------------------------------------------------
class Crash(BaseException):
    """The process is gone: nothing it would do afterwards happens."""


class FaultyDisk:
    """Fails at the given call: once, with an error, or for good, as after a crash."""

    def __init__(self, at: int, *, crash: bool) -> None:
        self.at, self.crash, self.count = at, crash, 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.crash and self.count >= self.at:
                raise Crash
            if self.count == self.at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return function(*arguments, **keywords)

        return call

    @contextmanager
    def installed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in HOOKED:
                patch.setattr(os, name, self.wrap(getattr(os, name)))
            yield


@pytest.mark.parametrize("crash", [False, True], ids=["error", "crash"])
def test_at_every_call_of_this_process(tmp_path: Path, crash: bool) -> None:
    outcomes: Counter[int] = Counter()
    for at in range(1, 1000):
        path = tmp_path / f"{at}"
        CheckpointStore(path).write(make_checkpoint(1))
        disk = FaultyDisk(at, crash=crash)
        try:
            with disk.installed():
                CheckpointStore(path).write(make_checkpoint(2))
        except Crash:
            assert crash
        except CheckpointError as told:
            problem = str(told)
            assert not crash
            assert "Input/output error" in problem
            assert not list(path.glob(".*")), "an error leaves no partial directory"
        if disk.count < at:
            break
        outcomes[check_nothing_is_lost(path)] += 1
    assert disk.count < at, "it must end without a fault at last"
    assert outcomes[1] >= 10
    assert outcomes[2] >= 1


@pytest.mark.parametrize("crash", [False, True], ids=["error", "crash"])
def test_at_every_call_of_a_removal(tmp_path: Path, crash: bool) -> None:
    for at in range(1, 1000):
        path = tmp_path / f"{at}"
        for step in (1, 2):
            CheckpointStore(path).write(make_checkpoint(step))
        disk, said = FaultyDisk(at, crash=crash), []
        store = CheckpointStore(path, say=said.append)
        try:
            with disk.installed():
                store.prune(1)
        except Crash:
            assert crash
        except CheckpointError as error:
            said.append(str(error))
        if disk.count < at:
            break
        assert crash or len(said) == 1, "an error is told"
        fresh = CheckpointStore(path)
        fresh.prepare()
        assert fresh.steps() in ([1, 2], [2])
        assert all(entry.problem is None for entry in fresh.entries(verify=True))
        assert len(list(path.iterdir())) == len(fresh.steps())
    assert disk.count < at, "it must end without a fault at last"


# -- in another process, at the level of the system -------------------------------------------------------------------
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")


def run_traced(path: Path, log: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(log),
        *options,
        sys.executable,
        "-B",
        str(HERE / "write_one.py"),
        str(path),
    ]
    variables = {"PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def with_first(tmp_path: Path) -> Path:
    """A store that holds checkpoint 1."""
    path = tmp_path / "checkpoints"
    CheckpointStore(path).write(make_checkpoint(1))
    return path


@pytest.fixture
def trace(with_first: Path, tmp_path: Path) -> list[str]:
    """All calls that write, of an undisturbed process."""
    done = run_traced(with_first, tmp_path / "log", "-e", f"trace={','.join(CALLS)}")
    if "PTRACE" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    return [line.split(maxsplit=1)[1] for line in (tmp_path / "log").read_text().splitlines() if "(" in line]


def called(line: str) -> str:
    return line.split("(", 1)[0]


@needs_strace
def test_everything_is_on_disk_before_its_name_appears(trace: list[str], with_first: Path) -> None:
    target = str(with_first / "step-00000002")
    final = next(i for i, line in enumerate(trace) if called(line) == "rename" and f'"{target}")' in line)
    partial = re.findall(r'"([^"]*)"', trace[final])[0]
    synced = {found[1]: i for i, line in enumerate(trace) if (found := re.match(r"fsync\(\d+<(.*)>\)", line))}
    written = {
        found[1]: i for i, line in enumerate(trace) if (found := re.match(r"(?:write|ftruncate)\(\d+<(.*?)>", line))
    }
    renamed = {
        (names := re.findall(r'"([^"]*)"', line))[1]: names[0] for line in trace[:final] if called(line)[:6] == "rename"
    }
    for name in ("model.safetensors", "optimizer.safetensors", "manifest.json"):
        path = f"{partial}/{name}"
        aliases = [path]
        while aliases[-1] in renamed:
            aliases.append(renamed[aliases[-1]])
        last_write = max(written[alias] for alias in aliases if alias in written)
        sync = max(synced[alias] for alias in aliases if alias in synced)
        assert last_write < sync < synced[partial] < final, name
    assert synced[str(with_first)] > final


@needs_strace
@pytest.mark.parametrize("fault", ["signal=KILL", "error=EIO"])
def test_at_every_call_of_the_system(trace: list[str], with_first: Path, tmp_path: Path, fault: str) -> None:
    def outcome(name: str, when: int) -> int:
        path = tmp_path / f"{name}-{when}"
        shutil.copytree(with_first / "step-00000001", path / "step-00000001")
        inject = ("-e", f"trace={name}", "-e", f"inject={name}:{fault}:when={when}")
        done = run_traced(path, tmp_path / f"{name}-{when}.log", *inject)
        if "KILL" in fault:
            assert done.returncode == -signal.SIGKILL, (name, when, done.stderr)
        else:
            assert done.stderr.startswith("told: "), (name, when, done.stderr)
            assert not list(path.glob(".*")), "an error leaves no partial directory"
        return check_nothing_is_lost(path)

    points = [(name, when) for name, count in Counter(map(called, trace)).items() for when in range(1, count + 1)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = Counter(pool.map(outcome, *zip(*points, strict=True)))
    assert outcomes[1] >= 10
    assert outcomes[2] >= 1

"""The terminal is closed: a run finishes its step, saves and leaves with its exit code, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from launched import processes_with
from PIL import Image
from supervised import OPTIONS, Finished, is_stopped, stopped_process, wait_until
from terminals import partial_files

SHARDED = ("--shards", 2, "--run-dir", "run")
STOP = "stop@rank=0,step=4,phase=forward"
LAUNCHED = {
    "alone": (),
    "local": ("-n", 2, "--launcher", "local", "--restarts", 2),
    "mpi": ("-n", 2, "--launcher", "mpi", "--restarts", 2),
}
RINGLET = (sys.executable, "-m", "ringlet")


@pytest.fixture(params=LAUNCHED)
def words(request: pytest.FixtureRequest) -> tuple[object, ...]:
    """How the workers are started."""
    if request.param == "mpi":
        pytest.importorskip("mpi4py")
    return LAUNCHED[request.param]


@pytest.fixture
def train(terminal, tmp_path):
    """Starts a run at a terminal that stops in its fourth step; gives the terminal and the process that has stopped."""

    def start(words, prefix=(), memory=None, **environment):
        (tmp_path / "temporary").mkdir()
        settings = {
            "RINGLET_FAULT": f"{STOP},once={tmp_path / 'fault'}",
            "TMPDIR": str(tmp_path / "temporary"),
            **environment,
        }
        command = [*prefix, *RINGLET, "train", *words, *SHARDED, *OPTIONS]
        command = command if memory is None else memory.wrapped(command)
        opened = terminal(command, environment=settings, cwd=tmp_path)
        return opened, stopped_process(opened.job)

    return start


def go_on(process: int, job, pending: int | None) -> None:
    """Let the stopped process go on, once it will hear of the signal."""
    if process != job.process.pid:
        wait_until(lambda: is_stopped(process, pending))
    os.kill(process, signal.SIGCONT)


def check_saved(job, tmp_path: Path, undisturbed, runs) -> None:
    """It has left as it should, and a run that goes on from there ends as if nothing had happened."""
    assert job.finish().returncode == 5
    assert processes_with(job.mark) == []
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert partial_files(tmp_path / "run") == []
    assert list((tmp_path / "temporary").iterdir()) == []
    run = Finished(tmp_path / "run", 5, "")
    [ended] = run.events("run_ended")
    assert ended["outcome"] == "interrupted"
    [stopped] = run.events("training_stopped")
    assert f"step-{stopped['step']:08d}" in [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert stopped["step"] < 10
    runs.resume("-n", 2).check_same_as(undisturbed())


def test_a_run_saves_and_leaves(train, words, own_memory, tmp_path, undisturbed, runs):
    opened, process = train(words, memory=own_memory)
    own_memory.hold(opened.job.process.pid)
    opened.close()
    go_on(process, opened.job, signal.SIGTERM)
    check_saved(opened.job, tmp_path, undisturbed, runs)
    assert own_memory.left() == []


def test_a_terminal_that_is_closed_several_times_does_not_insist(train, words, tmp_path, undisturbed, runs):
    """The kernel, the shell and the session may all tell of it, some of them with SIGTERM; none of that is a hurry."""
    opened, process = train(words)
    opened.job.process.send_signal(signal.SIGTERM)
    opened.close()
    for _ in range(3):
        opened.job.process.send_signal(signal.SIGHUP)
    go_on(process, opened.job, signal.SIGTERM)
    check_saved(opened.job, tmp_path, undisturbed, runs)


def test_nohup_stays_deaf(train, words, tmp_path, undisturbed):
    """A run that was told to ignore it goes on to its end, although it can write to its terminal no more."""
    opened, process = train(words, prefix=("sh", "-c", 'trap "" HUP; exec "$0" "$@"'))
    opened.close()
    opened.job.process.send_signal(signal.SIGHUP)
    os.kill(process, signal.SIGCONT)
    assert opened.job.finish().returncode == 0
    Finished(tmp_path / "run", 0, "").check_same_as(undisturbed())


def test_the_shell_of_a_closed_terminal_tells_the_whole_group(train, words, tmp_path, undisturbed, runs):
    """As shells do: the signal goes to every process of the group, and to the launcher more than once."""
    opened, process = train(words)
    group = os.getpgid(opened.job.process.pid)
    os.killpg(group, signal.SIGHUP)
    opened.close()
    go_on(process, opened.job, signal.SIGTERM)
    check_saved(opened.job, tmp_path, undisturbed, runs)


def test_a_study_leaves_and_goes_on_later(terminal, begin, tmp_path):
    tiny = ["--model", "simplemlp", "--dataset", "synthetic", "--input-shape", "1,4,4", "--launcher", "local"]
    tiny += ["--steps", "4", "--batch", "8", "--num-samples", "80", "--epochs", "2", "-n", "1,2", "--repeats", "2"]
    opened = terminal([*RINGLET, "study", *tiny, "--study-dir", "s"], cwd=tmp_path)
    opened.wait_for("[1/4]")
    opened.close()
    opened.job.process.send_signal(signal.SIGHUP)
    assert opened.job.finish().returncode == 5
    assert processes_with(opened.job.mark) == []
    assert partial_files(tmp_path / "s") == []
    assert begin([*RINGLET, "study", "s"], cwd=tmp_path).finish().returncode == 0


def test_watching_ends(terminal, runs, tmp_path):
    runs.train()
    opened = terminal([*RINGLET, "watch", "run"], cwd=tmp_path)
    opened.wait_for("http://127.0.0.1:")
    opened.close()
    assert opened.job.finish().returncode == 0
    assert processes_with(opened.job.mark) == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_scoring_rows_leaves_no_trace(terminal, runs, tmp_path, number):
    """As after Ctrl-C: the transaction is taken back."""
    duckdb = pytest.importorskip("duckdb")
    duckdb.connect(str(tmp_path / "rows.db")).close()
    runs.train()
    Image.new("L", (8, 8)).save(tmp_path / "picture.png")
    query = "select i as id, content as image from read_blob('picture.png'), range(100000000) numbers(i)"
    words = ("sql", "score", "duckdb:rows.db", "--model", "run", "--query", query, "--into", "scores")
    opened = terminal([*RINGLET, *words], environment={"TERM": "xterm"}, cwd=tmp_path)
    opened.wait_for("Predicting")
    opened.close() if number == signal.SIGHUP else opened.job.process.send_signal(number)
    assert opened.job.finish().returncode == 128 + number
    assert sorted(path.name for path in tmp_path.glob("rows*")) == ["rows.db"]
    with duckdb.connect(str(tmp_path / "rows.db")) as connection:
        assert connection.execute("select table_name from information_schema.tables").fetchall() == []

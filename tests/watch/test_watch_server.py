"""The server without a browser: who is answered, with what, and how it ends."""

from __future__ import annotations

import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest
from watched import LoggedRun, Watched

from ringlet.cli.main import main
from ringlet.training.events import EventLog
from ringlet.watch import pages


def test_only_this_machine_is_answered_and_ctrl_c_is_a_good_end(tmp_path: Path):
    run = LoggedRun(tmp_path / "run")
    run.epoch(1)
    pictures = run.path / "pictures"
    pictures.mkdir()
    (pictures / "epoch-0001.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with Watched(run.path) as watched:
        page = watched.ask()
        assert page.status == 200
        assert page.headers["content-security-policy"] == pages.SERVED_POLICY
        assert page.headers["x-content-type-options"] == "nosniff"
        assert b"<script>" not in page.body
        for host in ("evil.example", f"evil.example:{watched.port}", "127.0.0.1.evil.example", "0.0.0.0"):
            refused = watched.ask(Host=host)
            assert refused.status == 400, host
            assert b"Ringlet" not in refused.body
        assert watched.ask(Host=f"localhost:{watched.port}").status == 200
        assert watched.ask(method="POST").status == 405
        for name in (*pages.STYLES, *pages.SCRIPTS):
            assert watched.ask(f"/static/{name}").body.decode() == pages.read(name)
        for path in (
            "/static/index.html",
            "/static/../server.py",
            "/static/%2e%2e/server.py",
            "/runs/1/pictures/1.png",
            "/runs/-1/pictures/1.png",
            f"/runs/0/pictures/{'9' * 5000}.png",
            f"/runs/{'9' * 5000}/pictures/1.png",
        ):
            assert watched.ask(path).status == 404, path
        assert watched.ask("/runs/0/pictures/1.png").headers["content-type"] == "image/png"
        with closing(watched.stream()) as lines:
            assert next(line for line in lines if line.startswith(b"event: news"))
            code, said = watched.end()
        assert (code, said.strip()) == (0, "note: Ctrl-C ends it")


def test_it_ends_by_itself_when_the_runs_have(tmp_path: Path):
    first, second = LoggedRun(tmp_path / "first"), LoggedRun(tmp_path / "second")
    first.end()
    with closing(EventLog(second.events)), Watched(first.path, second.path, "--until-finished") as watched:
        lines = list(_until_news(watched, second))
        assert lines[-2:] == [b"event: over\n", b"data: {}\n"]
        assert watched.wait()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_it_as_well(tmp_path: Path, number: signal.Signals):
    run = LoggedRun(tmp_path / "run")
    with Watched(run.path) as watched, closing(watched.stream()) as lines:
        assert next(line for line in lines if line.startswith(b"event: news"))
        code, said = watched.end(number)
    assert (code, said.strip()) == (0, "note: Ctrl-C ends it")


def test_it_does_not_wait_for_a_run_that_was_killed(tmp_path: Path):
    run = LoggedRun(tmp_path / "run")
    run.epoch(1)
    with Watched(run.path, "--until-finished") as watched:
        code, said = watched.wait()
    assert code == 0
    assert f"{run.path}: its process is gone and has not said that it ended; `ringlet resume {run.path}`" in said


def _until_news(watched: Watched, run: LoggedRun) -> list[bytes]:
    """All lines of the stream; the run ends as soon as the page has heard of it."""
    found = []
    for line in watched.stream():
        if line.startswith(b"event: news") and not any(old == line for old in found):
            run.end()
        found.append(line)
    return [line for line in found if line.strip()]


def test_mistakes_are_told(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert main(["watch"]) == 2
    assert "no run in the folder 'runs'" in capsys.readouterr().err
    run = LoggedRun(tmp_path / "run")
    assert main(["watch", str(run.path), "--save", str(tmp_path / "missing" / "page.html")]) == 2
    assert "cannot write" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["watch", str(run.path), "--port", str(taken.getsockname()[1])]) == 2
    assert "Give another --port" in capsys.readouterr().err

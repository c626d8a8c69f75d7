"""Following a log, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from watched import STEPS, LoggedRun

from ringlet.training.run_lock import RunLock
from ringlet.watch.pages import Cursor
from ringlet.watch.ranks import telling_ranks
from ringlet.watch.run_files import LogFollower, find_run, read_picture
from ringlet.watch.run_view import RunView, Series


def write(path: Path, *lines: object) -> None:
    with path.open("a") as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


def events(*names: str) -> list[dict[str, str]]:
    return [{"event": name} for name in names]


def test_a_follower_gives_whole_lines_once(tmp_path):
    log = LogFollower(tmp_path / "log")
    assert log.look().records == []
    write(tmp_path / "log", *events("a"), '{"event": "b"')
    assert log.look().records == events("a")
    assert log.look().records == []
    write(tmp_path / "log", "}\n")
    assert log.look().records == events("b")


@pytest.mark.parametrize("grown_again", [False, True])
def test_a_log_that_was_cut_is_read_from_its_beginning(tmp_path, grown_again):
    path = tmp_path / "log"
    write(path, *events("a", "b", "c"))
    log = LogFollower(path)
    log.look()
    path.write_text("")
    after = events("a", "d", "e", "f", "g") if grown_again else events("a")
    write(path, *after)
    news = log.look()
    assert news.started_over
    assert news.records == after


def test_lines_that_are_no_events_are_counted_and_left_out(tmp_path):
    lines = (
        "nonsense\n",
        "[1]\n",
        '{"event": 3}\n',
        "[" * 100_000 + "\n",
        "\n",
        '{"event": "ok", "x": NaN}\n',
        "\xff\n",
    )
    write(tmp_path / "log", *lines)
    news = LogFollower(tmp_path / "log").look()
    assert [record["event"] for record in news.records] == ["ok"]
    assert news.num_broken == 5


def test_a_large_log_is_read_in_slices_and_an_endless_line_is_skipped(tmp_path):
    path = tmp_path / "log"
    write(path, *events("a"), "x" * 5000 + "\n", *events("b", "c"))
    log = LogFollower(path, slice_bytes=100, max_line_bytes=1000)
    found, behind, num_broken = [], True, 0
    while behind:
        news = log.look()
        behind, num_broken = news.is_behind, num_broken + news.num_broken
        found += news.records
    assert found == events("a", "b", "c")
    assert num_broken == 1


def test_a_thinned_series_keeps_its_peaks_and_its_order():
    series = Series(max_points=100)
    for step in range(10_000):
        series.add(step, 50.0 if step == 1234 else -50.0 if step == 7777 else None if step % 3 else 1.0)
    series.add(9999, 99.0)
    assert len(series.x) <= 100
    assert series.x == sorted(set(series.x))
    known = dict(zip(series.x, series.y, strict=True))
    assert known[1234] == 50.0
    assert known[7777] == -50.0
    assert 99.0 not in series.y


def test_of_many_ranks_those_at_both_ends_of_waiting_are_shown():
    rows = [{"wait": float((rank * 37) % 1000)} for rank in range(1000)]
    shown = telling_ranks(rows, 4)
    assert sorted(rows[rank]["wait"] for rank in shown) == [0.0, 1.0, 998.0, 999.0]
    assert shown == sorted(shown)
    assert telling_ranks(rows[:3], 4) == [0, 1, 2]


def test_a_view_has_every_metric_of_a_run(tmp_path):
    run = LoggedRun(tmp_path / "run")
    run.epoch(1)
    run.stale(1)
    run.resume("rank 1 was killed")
    run.epoch(2)
    run.end()
    view = RunView(run.path)
    view.look()
    assert view.has_ended
    assert view.series["step:loss"].y == [1 / step for step in range(1, 2 * STEPS + 1)]
    assert view.series["val:loss"].x == [STEPS, 2 * STEPS]
    assert view.series["axis:epoch"].y[STEPS - 1 : STEPS + 1] == [1.0, 1.1]
    assert view.series["throughput:epochs"].y == [90.0, 90.0]
    assert view.series["throughput:steps"].y == [9.0] * 2 * STEPS
    ranks = view.ranks.document
    assert ranks["shares"]["last"]["exchange"] == pytest.approx(0.15)
    assert ranks["total"][0]["seconds"]["compute"] == pytest.approx(1.0)
    assert view.staleness.document == {"epoch": 1, "mean": 1.5, "max": 3.0, "histogram": [1, 5, 2, 1]}
    assert view.status["num_restarts"] == 1
    assert "restart 1: rank 1 was killed" in [note["text"] for note in view.notes.items]


def test_a_cursor_gives_what_a_page_lacks(tmp_path):
    run = LoggedRun(tmp_path / "run")
    run.epoch(1)
    view, cursor = RunView(run.path, max_points=25), Cursor()
    view.look()
    first = cursor.take([view])["runs"][0]
    assert first["is_new"]
    assert len(first["series"]["step:loss"]["x"]) == STEPS
    assert cursor.take([view]) == {}
    run.epoch(2)
    view.look()
    second = cursor.take([view])["runs"][0]
    assert second["series"]["step:loss"]["start"] == STEPS
    assert "about" not in second
    run.epoch(3)
    view.look()
    assert cursor.take([view])["runs"][0]["series"]["step:loss"]["start"] == 0, "it was thinned"
    run.events.write_text("")
    view.look()
    assert cursor.take([view])["runs"][0]["is_new"]


def test_hostile_values_do_no_harm(tmp_path):
    path = tmp_path / "events.ndjson"
    many = {f"metric {number}": 1.0 for number in range(1000)}
    write(
        path,
        {"event": "run_started", "time": "never", "num_workers": 10**400, "config": [1], "model": "m" * 10_000},
        {"event": "epoch_started", "epoch": -1, "num_steps": "x"},
        {"event": "step_finished", "step": 1, "figures": {"loss": "nan", **many}, "learning_rate": True},
        {"event": "step_finished", "step": None, "figures": "loss"},
        {"event": "phases_measured", "phases": ["wait", {}], "seconds": [[1, "x"], 7, [float("inf"), -1.0]]},
        {"event": "staleness_measured", "histogram": "abc", "mean": {}, "max": []},
        {"event": "epoch_finished", "figures": None, "messages": 3, "step": "last"},
        {"event": "run_ended", "outcome": 5},
    )
    view = RunView(tmp_path)
    view.look()
    document = json.dumps(Cursor().take([view]), allow_nan=False)
    assert len(document) < 200_000
    assert view.series["step:loss"].y == [None]
    assert view.about["num_workers"] == 0
    assert view.has_ended


def test_a_picture_that_is_none_is_not_given_out(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    png = b"\x89PNG\r\n\x1a\n and so on"
    (folder / "epoch-0001.png").write_bytes(png)
    (folder / "epoch-0002.png").write_text("root:x:0")
    (folder / "secret").write_bytes(png)
    (folder / "epoch-0003.png").symlink_to(folder / "secret")
    assert [read_picture(tmp_path, epoch) for epoch in (1, 2, 3, 4)] == [png, None, None, None]


def test_a_folder_of_runs_is_told_apart_from_a_run(tmp_path):
    from ringlet.errors import UsageError

    run = LoggedRun(tmp_path / "mine")
    assert find_run(run.events) == run.path == find_run(run.path)
    with pytest.raises(UsageError, match=r"Did you mean .*mine"):
        find_run(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        find_run(tmp_path / "other")


def test_a_run_whose_process_is_gone_is_not_running(tmp_path):
    run, now = LoggedRun(tmp_path / "run"), [1_700_000_005.0]
    view = RunView(run.path, clock=lambda: now[0])

    def look_again() -> tuple[str, bool]:
        view.look()
        return view.status["state"], view.is_lost

    with RunLock.acquire(run.path):
        now[0] += 1000
        assert look_again() == ("running", False)  # a process writes the run
        now[0] -= 1000
    assert look_again() == ("running", False)  # it may have been a moment ago
    now[0] += 60
    assert look_again() == ("gone", False)  # it may be started again
    now[0] += 60
    assert look_again() == ("gone", True)
    now[0] = 1_700_000_005.0
    run.resume("killed")
    assert look_again() == ("running", False)
    run.end()
    now[0] += 1000
    assert look_again() == ("finished", False)

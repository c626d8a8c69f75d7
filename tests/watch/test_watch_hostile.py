"""Whatever stands in a log, its readers make strict JSON of bounded size of it, or say what is wrong."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hostile import hostile_records, usual_records, write
from hypothesis import HealthCheck, example, given, settings

from ringlet.cli.main import main
from ringlet.errors import DataError
from ringlet.study.measurement import read_measurement
from ringlet.watch.pages import Cursor, save_page
from ringlet.watch.run_view import RunView
from ringlet.watch.server import Hub

MAX_DOCUMENT = 200_000
"""Of the few events here; curves grow with the log, up to a limit of their own."""
many = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def strict(text: str) -> Any:
    """JSON as browsers read it: without NaN and infinities."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def changed(event: str, **values: Any) -> list[dict[str, Any]]:
    return [{**record, **(values if record["event"] == event else {})} for record in usual_records()]


@many
@given(records=hostile_records())
@example(records=changed("phases_measured", seconds=[[1e308, 1e308, 1e308]] * 2))
@example(records=changed("phases_measured", seconds=[[1.7e308, 0.0, 0.0]] * 40))
@example(records=[*changed("step_finished", time=-1e308), *changed("step_finished", time=1e308)])
@example(records=changed("run_resumed", time=1e308))
@example(records=changed("epoch_finished", step=1e308, seconds=1e308, samples_per_second=-1e308))
@example(records=changed("step_finished", num_samples=2**52, time=1e12))
def test_any_log_becomes_a_page(records: list[dict[str, Any]], tmp_path: Path):
    write(tmp_path, records)
    view = RunView(tmp_path)
    while view.look():
        pass
    document = json.dumps(Cursor().take([view]), allow_nan=False)
    assert strict(document)["runs"][0]["status"]["num_broken"] == 0
    assert len(document) < MAX_DOCUMENT
    assert strict(asyncio.run(Hub([view]).news(Cursor()))) == strict(document)
    save_page([RunView(tmp_path)], tmp_path / "page.html")
    saved = re.search(r'id="saved"[^>]*>(.*?)</script>', (tmp_path / "page.html").read_text(), re.DOTALL)
    assert saved is not None
    assert strict(saved[1])["runs"][0]["series"] == strict(document)["runs"][0]["series"]


@many
@given(records=hostile_records())
@example(records=changed("epoch_finished", seconds=1e308))
@example(records=changed("epoch_finished", seconds=-1.0))
@example(records=changed("phases_measured", seconds=[[1e308, 1e308, 1e308]] * 2))
@example(records=changed("phases_measured", seconds=[[1.0]]))
@example(records=changed("run_started", num_parameters=float("inf")))
def test_any_log_is_measured_or_refused(records: list[dict[str, Any]], tmp_path: Path):
    path = write(tmp_path, records)
    try:
        measured = read_measurement(path)
    except DataError as error:
        assert str(path) in str(error)  # noqa: PT017
        return
    strict(json.dumps(measured.to_dict(), allow_nan=False))
    for epoch in measured.epochs:
        assert epoch.seconds >= 0
        assert sum(epoch.shares.values()) == pytest.approx(1) or not epoch.shares


def test_a_usual_log_is_measured(tmp_path: Path):
    measured = read_measurement(write(tmp_path, usual_records()))
    assert [epoch.seconds for epoch in measured.epochs] == [1.5, 1.5]
    assert measured.test == {"loss": 0.5, "val_loss": 0.25}


def test_a_page_does_not_grow_with_moments_that_do_not_exist(tmp_path: Path):
    write(tmp_path, [{"event": "evaluated", "moment": f"moment {n}", "figures": {"loss": 1}} for n in range(20_000)])
    view = RunView(tmp_path)
    while view.look():
        pass
    assert view.tests == {}
    assert len(json.dumps(Cursor().take([view]))) < MAX_DOCUMENT


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1" + "0" * 400, "NaN", '"nan"', "Infinity", "-5"])
def test_a_page_is_saved_whatever_times_a_log_holds(tmp_path: Path, value: str, capsys: pytest.CaptureFixture[str]):
    line = '{"event": "phases_measured", "time": %s, "epoch": 1, "phases": ["wait", "wait"], "seconds": [[%s, %s]]}\n'
    (tmp_path / "events.ndjson").write_text(f'{{"event": "run_started", "time": 1}}\n{line % (value, value, value)}')
    assert main(["watch", str(tmp_path), "--save", str(tmp_path / "page.html")]) == 0
    assert "Traceback" not in capsys.readouterr().err

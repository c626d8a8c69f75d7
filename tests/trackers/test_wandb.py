"""Weights & Biases, offline: what its own client has written, read from its files."""

from __future__ import annotations

import json
import os
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

from ringlet import RunConfig
from ringlet.errors import InterruptedRunError, UsageError
from ringlet.trackers.wandb import WandB, has_key
from ringlet.training.events import Event, RunEnded, StepFinished
from ringlet.training.session import Session

pytestmark = [pytest.mark.xdist_group("trackers"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
OPTIONS: dict[str, Any] = {"model": "simplemlp", "num_epochs": 2, "steps_per_epoch": 4, "batch_size": 32}
OPTIONS |= {"kernels": "reference", "threads": 1, "run_dir": "run", "checkpoint_every": "3 steps"}
BLOCK, HEADER = 32768, 7
"""W&B's files are logs of LevelDB's format: blocks of records, each with checksum, length and type."""


@pytest.fixture(autouse=True)
def without_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def records(file: Path) -> list[Any]:
    """All records that the client has written, by its own protocol."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts, found = file.read_bytes(), HEADER, b"", []
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):  # whole, or the last part of one
            found.append(Record.FromString(parts))
            parts = b""
    return found


def points(files: list[Path]) -> list[tuple[str, int, float]]:
    """(name, step, value) of everything that was logged, in order."""
    found = []
    for record in (record for file in files for record in records(file) if record.HasField("history")):
        values = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
        own = {name: value for name, value in values.items() if not name.startswith("_")}
        found += [(name, record.history.step.num, float(value)) for name, value in own.items()]
    return found


def interrupt(event: Event) -> None:
    if isinstance(event, StepFinished) and event.step == 5:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupted_run_is_continued_as_one_run_with_every_point_once() -> None:
    config = RunConfig(**OPTIONS, log=["wandb:cats"])

    def trackers(folder: Path) -> list[Any]:
        return [tracker.build(folder) for tracker in config.trackers]

    with pytest.raises(InterruptedRunError):
        Session.open(config).run([interrupt], trackers)
    with pytest.warns(UserWarning, match="supersedes"):
        Session.open(config.replace(resume="3")).run([], trackers)
    files = sorted(Path("run/wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    runs = [record.run for file in files for record in records(file) if record.HasField("run")]
    assert {run.run_id for run in runs} == {json.loads(Path("run/wandb-run.json").read_text())["id"]}
    assert {(run.project, run.display_name) for run in runs} == {("cats", "run")}

    logged = points(files)
    wanted = []
    for event in map(json.loads, Path("run/events.ndjson").read_text().splitlines()):
        if event["event"] == "step_finished":
            wanted += [(f"step/{name}", event["step"], value) for name, value in event["figures"].items()]
    assert sorted(point for point in logged if point[0].startswith("step/")) == [
        (name, step, pytest.approx(value)) for name, step, value in sorted(wanted)
    ]
    assert len({(name, step) for name, step, _ in logged}) == len(logged)
    assert {"val/accuracy", "train/loss", "learning_rate", "time/forward"} <= {name for name, _, _ in logged}
    configured = {
        item.key or ".".join(item.nested_key): item.value_json
        for file in files
        for record in records(file)
        for item in record.config.update
    }
    assert configured["model.name"] == '"simplemlp"'
    exits = [record.exit.exit_code for file in files for record in records(file) if record.HasField("exit")]
    assert exits == [1, 0]


def test_it_is_online_only_with_a_key_or_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not has_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password made-up\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org/api")
    assert not has_key()
    monkeypatch.setenv("WANDB_API_KEY", "made-up")
    assert has_key()


def test_options_come_by_name_and_mistakes_are_told() -> None:
    (chosen,) = RunConfig(log=["wandb"], **{"trackers.wandb.entity": "team", "trackers.wandb.mode": "offline"}).trackers
    assert (chosen.project, chosen.entity, chosen.mode) == ("ringlet", "team", "offline")
    with pytest.raises(UsageError, match="'sometimes' is not known, expected 'online', 'offline' or 'disabled'"):
        RunConfig(log=["wandb"], **{"trackers.wandb.mode": "sometimes"})
    Path("memory").write_text("[]")
    with pytest.raises(UsageError, match="does not say which run"):
        WandB("logs", memory=Path("memory"))(RunEnded("finished", ""))

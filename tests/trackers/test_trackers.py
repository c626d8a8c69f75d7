"""Trackers: each is read back with its tool's own reader."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from urllib.request import urlopen

import pytest

from ringlet import RunConfig, Trainer
from ringlet.cli.main import main
from ringlet.errors import InterruptedRunError, UsageError
from ringlet.trackers import MLflow, Prometheus, TensorBoard
from ringlet.training.events import Event, RunEnded, StepFinished
from ringlet.training.observers import Callback
from ringlet.training.session import Session

pytestmark = [pytest.mark.xdist_group("trackers"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]
EPOCHS, STEPS = 2, 4
OPTIONS: dict[str, Any] = {"model": "simplemlp", "num_epochs": EPOCHS, "steps_per_epoch": STEPS, "batch_size": 32}
OPTIONS |= {"kernels": "reference", "threads": 1}
ALL = ("tensorboard", "mlflow", "prometheus")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGLET_TUNING", "off")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def expected(run: Path) -> dict[str, dict[int, float]]:
    """Curves by name and step, straight from the run's own log."""
    curves: dict[str, dict[int, float]] = {}
    for event in map(json.loads, (run / "events.ndjson").read_text().splitlines()):
        if event["event"] == "step_finished":
            for name, value in event["figures"].items():
                curves.setdefault(f"step/{name}", {})[event["step"]] = value
        if event["event"] == "epoch_finished":
            for name, value in event["figures"].items():
                kind = f"val/{name[4:]}" if name.startswith("val_") else f"train/{name}"
                curves.setdefault(kind, {})[event["step"]] = value
    return curves


def scalars(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, float]]]:
    """All points in TensorBoard's files, as its reader sees them."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))  # it would import TensorFlow
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]}


def metrics(database: Path, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """All points in MLflow's database, as its client sees them."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    found = client.get_run(run_id).data.metrics
    histories = {name: client.get_metric_history(run_id, name) for name in found}
    return {name: sorted((point.step, point.value) for point in history) for name, history in histories.items()}


def gauges(text: str) -> dict[tuple[str, str], float]:
    """Name and figure of all samples of an exposition, as the client's parser sees them."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, sample.labels.get("figure", "")): sample.value for sample in samples}


def check(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three tools have every point of the run's log once."""
    written = scalars(run / "tensorboard", monkeypatch)
    logged = metrics(run.parent / "mlflow.db", (run / "mlflow-run").read_text().strip())
    newest = gauges((run / "metrics.prom").read_text())
    curves = expected(run)
    assert {name.partition("/")[0] for name in curves} == {"step", "train", "val"}
    for name, points in curves.items():
        kind, _, figure = name.partition("/")
        wanted = sorted(points.items())
        assert written[name] == [(step, pytest.approx(value)) for step, value in wanted], name
        assert logged[name] == [(step, pytest.approx(value)) for step, value in wanted], name
        assert newest[f"ringlet_{kind}", figure] == pytest.approx(wanted[-1][1])
    assert [step for step, _ in written["learning_rate"]] == list(range(1, EPOCHS * STEPS + 1))
    assert newest["ringlet_updates", ""] == EPOCHS * STEPS
    assert newest["ringlet_running", ""] == 0
    for other in (written, logged):
        assert other["time/forward"][-1][1] > 0
        assert len(other["test/accuracy"]) == 1


def interrupted_after(step: int) -> Callable[[Event], None]:
    """A callback that lets the run be interrupted in this step, as by Ctrl-C."""

    def watch(event: Event) -> None:
        if isinstance(event, StepFinished) and event.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def test_three_trackers_have_every_point_once_although_the_run_was_interrupted(tmp_path, monkeypatch):
    config = RunConfig(**OPTIONS, run_dir="run", log=ALL, checkpoint_every="3 steps")

    def trackers(folder: Path) -> list[Callback]:
        return [tracker.build(folder) for tracker in config.trackers]

    with pytest.raises(InterruptedRunError):
        Session.open(config).run([interrupted_after(5)], trackers)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    run_id = Path("run/mlflow-run").read_text().strip()
    assert client.get_run(run_id).info.status == "KILLED"
    assert gauges(Path("run/metrics.prom").read_text())["ringlet_running", ""] == 0
    with pytest.warns(UserWarning, match="supersedes the checkpoints of step 5"):
        Session.open(config.replace(resume="3")).run([], trackers)
    check(tmp_path / "run", monkeypatch)
    finished = client.get_run(run_id)
    assert finished.info.status == "FINISHED"
    assert finished.info.run_name == "run"
    assert finished.data.params["model.name"] == "simplemlp"
    experiment = client.get_experiment_by_name("ringlet")
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_the_command_line_writes_them_on_rank_0_of_two(tmp_path, monkeypatch, capfd):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    words = ["train", "-n", "2", "--launcher", "local", "--run-dir", "run", "--log", ",".join(ALL), *options]
    assert main(words) == 0, capfd.readouterr().err
    check(tmp_path / "run", monkeypatch)
    assert len(list(Path("run/tensorboard").iterdir())) == 1


def test_trackers_serve_a_trainer_too(tmp_path, monkeypatch):
    board, server = TensorBoard(tmp_path / "logs"), Prometheus(tmp_path / "file.prom", run="mine")
    trainer = Trainer(**OPTIONS, callbacks=[board, server])
    history = trainer.fit()
    board.close()
    server.close()
    assert [value for _, value in scalars(tmp_path / "logs", monkeypatch)["train/loss"]] == [
        pytest.approx(epoch["loss"]) for epoch in history.epochs
    ]
    assert 'ringlet_train{figure="loss",run="mine"}' in (tmp_path / "file.prom").read_text()


def test_prometheus_is_served_on_the_loopback(unused_port):
    server = Prometheus(port=unused_port, run='a "run"')
    server(StepFinished(1, 7, 7, 32, 0.5, {"loss": float("nan"), "accuracy": 0.25}, {}))
    with urlopen(f"http://127.0.0.1:{unused_port}/metrics") as answer:
        found = gauges(answer.read().decode())
    server.close()
    assert found["ringlet_updates", ""] == 7
    assert found["ringlet_step", "accuracy"] == 0.25
    assert found["ringlet_step", "loss"] != found["ringlet_step", "loss"]


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_a_tracker_that_fails_is_switched_off_and_training_goes_on(tmp_path, monkeypatch):
    tracker = Prometheus(tmp_path / "file.prom")
    step = StepFinished(1, 1, 1, 32, 0.5, {"loss": 1.0}, {})
    tracker(step)
    monkeypatch.setattr(tracker, "_step", None)
    with pytest.warns(UserWarning, match="Prometheus is switched off"):
        tracker(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker(step)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_is_full_for_a_while_costs_no_tracker(tmp_path, monkeypatch, number):
    """Nothing half written stays; when there is room again everything goes on, and TensorBoard reads all of it."""
    board, gauges = TensorBoard(tmp_path / "board"), Prometheus(tmp_path / "file.prom")
    monkeypatch.setattr("ringlet.trackers.tensorboard._FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("ringlet.trackers.prometheus._WRITE_SECONDS", 0.0)

    def step(place: int) -> None:
        for tracker in (board, gauges):
            tracker(StepFinished(1, place, place, 32, 0.5, {"loss": float(place)}, {}))

    step(1)
    before = Path("file.prom").read_bytes()
    with monkeypatch.context() as full:
        write = os.write
        full.setattr(
            "ringlet.io.disk.os.write", lambda descriptor, data: write(descriptor, data[:3]) and refuse(number)
        )
        full.setattr(Path, "replace", lambda *_: refuse(number))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            step(2)
            step(3)
    assert len(told) == 2, [str(one.message) for one in told]
    assert all("The run goes on; the next write of" in str(one.message) for one in told)
    assert Path("file.prom").read_bytes() == before
    with pytest.warns(UserWarning, match="can be written again"):
        step(4)
    for tracker in (board, gauges):
        tracker(RunEnded("finished", ""))
    assert scalars(tmp_path / "board", monkeypatch)["step/loss"] == [(place, float(place)) for place in range(1, 5)]
    assert 'ringlet_updates{run=""} 4.0' in Path("file.prom").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "file.prom"]


def refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


def test_a_full_database_of_mlflow_is_tried_again(tmp_path, monkeypatch):
    tracker = MLflow(f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setattr("ringlet.trackers.mlflow._FLUSH_SECONDS", 0.0)
    tracker(StepFinished(1, 1, 1, 32, 0.5, {"loss": 1.0}, {}))
    with monkeypatch.context() as full:

        def fail(*_: object, **__: object) -> None:
            problem = sqlite3.OperationalError("database or disk is full")
            problem.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise RuntimeError("the store failed") from problem

        full.setattr(tracker._client, "log_batch", fail)
        with pytest.warns(UserWarning, match="The run goes on; the next write of MLflow"):
            tracker(StepFinished(1, 2, 2, 32, 0.5, {"loss": 2.0}, {}))
    with pytest.warns(UserWarning, match="can be written again"):
        tracker(StepFinished(1, 3, 3, 32, 0.5, {"loss": 3.0}, {}))
    tracker(RunEnded("finished", ""))
    history = tracker._client.get_metric_history(tracker.run_id, "step/loss")
    assert sorted((metric.step, metric.value) for metric in history) == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_mistakes_are_told_before_anything_is_trained(tmp_path, capsys):
    assert main(["train", "--log", "tensorbord", "--run-dir", "run"]) == 2
    assert "unknown tracker 'tensorbord'. Did you mean 'tensorboard'?" in capsys.readouterr().err
    assert not Path("run").exists()
    with pytest.raises(UsageError, match="twice"):
        RunConfig(log=["mlflow", "mlflow:http://127.0.0.1"])
    with pytest.raises(UsageError, match="expected a port"):
        RunConfig(log=["prometheus:70000"])
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write to"):
        TensorBoard(tmp_path / "file" / "logs")(RunEnded("finished", ""))
    with pytest.raises(UsageError, match="MLflow cannot log to 'nonsense://x'"):
        MLflow("nonsense://x")(RunEnded("finished", ""))

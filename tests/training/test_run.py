"""A whole run: its directory, divergence, interruption, and nothing left behind by bad input."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path

import pytest

from ringlet import load_model
from ringlet.config import gather
from ringlet.errors import DivergedError, InterruptedRunError, RingletError, UsageError
from ringlet.models.files import load_model_file
from ringlet.training.events import EpochFinished, StepFinished
from ringlet.training.observers import Control, interruptible
from ringlet.training.session import Session


def records(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "events.ndjson").read_text().splitlines()]


def test_a_run_leaves_config_events_and_model(small_config):
    result = Session.open(small_config(run_dir="out")).run()
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "checkpoints",
        "config.toml",
        "evaluation",
        "events.ndjson",
        "model.safetensors",
    ]
    assert json.loads(Path("out/evaluation/report.json").read_text())["metrics"] == result.test
    assert result.model_file == "out/model.safetensors"


def test_the_written_configuration_describes_the_same_run(small_config):
    config = small_config(run_dir="out")
    Session.open(config).run()
    assert gather(Path("out/config.toml")).build().to_dict() == config.to_dict()
    assert tomllib.loads(Path("out/config.toml").read_text())["training"]["local_batch_size"] == 32


def test_every_figure_is_in_the_events(small_config):
    result = Session.open(small_config(run_dir="out", evaluate=True)).run()
    found = records(Path("out"))
    assert found[0]["event"] == "run_started"
    assert [record["figures"] for record in found if record["event"] == "epoch_finished"] == result.epochs
    tests = {record["moment"]: record["figures"] for record in found if record["event"] == "evaluated"}
    assert tests == {"before": result.test_before, "after": result.test}
    assert sum(record["event"] == "step_finished" for record in found) == 8


def test_every_epoch_says_where_its_time_went(small_config):
    Session.open(small_config(run_dir="out")).run()
    measured = [record for record in records(Path("out")) if record["event"] == "phases_measured"]
    assert [record["epoch"] for record in measured] == [1, 2]
    for record in measured:
        (seconds,) = [dict(zip(record["phases"], row, strict=True)) for row in record["seconds"]]
        assert min(seconds[phase] for phase in ("data", "forward", "backward", "update", "validation")) > 0


def test_the_model_file_is_the_trained_model(small_config):
    session = Session.open(small_config(run_dir="out"))
    result = session.run()
    assert load_model("out", batch_size=32, kernels="reference").evaluate() == result.test == session.evaluate()


def test_the_default_directory_names_model_and_data(small_config):
    result = Session.open(small_config()).run()
    assert Path(result.run_dir).parent == Path("runs")
    assert Path(result.run_dir).name.startswith("simplecnn-digits-")


def test_two_runs_in_one_second_get_two_directories(small_config):
    first, second = (Session.open(small_config()).run().run_dir for _ in range(2))
    assert first != second


@pytest.mark.parametrize("evaluate", [False, None, True])
def test_evaluation_happens_as_asked(small_config, evaluate):
    result = Session.open(small_config(evaluate=evaluate)).run()
    assert (result.test_before is not None, result.test is not None) == (evaluate is True, evaluate is not False)


def test_evaluate_only_trains_nothing_and_writes_nothing(small_config):
    result = Session.open(small_config(evaluate_only=True)).run()
    assert result.test is not None
    assert result.num_steps == 0
    assert list(Path().iterdir()) == []


def test_the_history_file_holds_columns(small_config):
    Session.open(small_config(history_file="history.json")).run()
    history = json.loads(Path("history.json").read_text())
    assert len(history["val_loss"]) == 2


def test_zero_epochs_save_the_initial_model(small_config):
    Session.open(small_config(num_epochs=0, run_dir="out")).run()
    assert load_model_file("out/model.safetensors").spec.name == "simplecnn"


def test_an_occupied_run_directory_is_left_alone(small_config):
    Path("out").mkdir()
    Path("out/precious").write_text("mine")
    with pytest.raises(UsageError, match="exists and is not empty"):
        Session.open(small_config(run_dir="out"))
    assert [path.name for path in Path("out").iterdir()] == ["precious"]


@pytest.mark.parametrize(
    "options",
    [
        {"model": "nothing"},
        {"dataset": "npz:missing.npz"},
        {"dataset": "mnist", "dataset_path": "missing"},
        {"validation_split": 0.0001},
        {"history_file": "missing/history.json"},
        {"weights_and_bias_filename": "missing.safetensors"},
        {"lr_schedulers": ("stop_at_loss",)},
    ],
)
def test_bad_input_leaves_nothing_behind(small_config, options):
    with pytest.raises(RingletError):
        Session.open(small_config(**options)).run()
    assert list(Path().iterdir()) == []


def test_divergence_names_epoch_and_step(small_config):
    with pytest.raises(DivergedError, match=r"epoch 1, step \d+ \(update \d+\)"):
        Session.open(small_config(optimizer="sgd", learning_rate=1e30, run_dir="out")).run()
    assert not Path("out/model.safetensors").exists()
    stopped, ended = records(Path("out"))[-2:]
    assert stopped["event"] == "training_stopped"
    assert (ended["event"], ended["outcome"]) == ("run_ended", "diverged")


def test_divergence_keeps_the_last_good_model(small_config, monkeypatch):
    session = Session.open(small_config(num_epochs=3, run_dir="out"))
    good = []

    def poison(event):
        if isinstance(event, EpochFinished) and event.epoch == 2:
            good.append(load_model_file("out/model.safetensors").tensors)
            session.replica.parameters.flat[:] = float("nan")

    with pytest.raises(
        DivergedError, match=r"epoch 3, step 1 .*holds the model after epoch 2".replace(" .*", "(.|\n)*")
    ):
        session.run([poison])
    kept = load_model_file("out/model.safetensors").tensors
    assert all((kept[name] == good[0][name]).all() for name in kept)


def test_an_interruption_finishes_the_step_and_saves(small_config):
    def interrupt(event):
        if isinstance(event, StepFinished) and event.step == 3:
            signal.raise_signal(signal.SIGINT)

    session = Session.open(small_config(run_dir="out"))
    with pytest.raises(InterruptedRunError, match="after 3 updates"):
        session.run([interrupt])
    assert session.progress.num_steps == 3
    saved = load_model_file("out/model.safetensors").tensors
    assert all((saved[name] == view).all() for name, view in session.replica.parameters.views.items())


def test_the_second_interruption_leaves_at_once():
    control = Control()
    with interruptible(control):
        signal.raise_signal(signal.SIGINT)
        assert control.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signal_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    with interruptible(Control()):
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_model_checkpoint_keeps_the_best_model(small_config):
    Session.open(small_config(run_dir="out", lr_schedulers=("model_checkpoint",), num_epochs=3)).run()
    assert Path("out/best.safetensors").is_file()

"""The other verbs: evaluate, models, datasets, doctor; help, version, start-up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet as package
from ringlet.cli.display import clean, format_metric
from ringlet.cli.main import VERBS
from ringlet.config.describe import rows
from ringlet.config.sections import SECTIONS
from ringlet.training.display import PlainDisplay, create_display


@pytest.fixture
def trained(ringlet):
    options = ("--model", "simplecnn", "--num-epochs", "1", "--kernels", "reference", "--run-dir", "out")
    assert ringlet("train", *options).code == 0
    return Path("out")


def test_evaluate_gives_the_figures_of_the_run(ringlet, trained):
    outcome = ringlet("evaluate", str(trained), "--kernels", "reference", "--json")
    events = [json.loads(line) for line in (trained / "events.ndjson").read_text().splitlines()]
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["test"] == next(e["figures"] for e in events if e["event"] == "evaluated")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("evaluate",), 2, "Missing argument"),
        (("evaluate", "none.safetensors"), 1, "none.safetensors"),
        (("evaluate", "out", "--dataset", "nothing"), 2, "unknown data set 'nothing'"),
        (("evaluate", "out", "--dataset", "shapes"), 2, "network 'simplecnn'"),
        (("evaluate", "out", "--kernels", "fast"), 2, "unknown kernels 'fast'"),
        (("models", "simplecn"), 2, "Did you mean 'simplecnn'?"),
        (("models", "simplecnn", "--input-shape", "1,2,2"), 2, "2x2"),
        (("datasets", "fetch", "mnis"), 2, "Did you mean 'mnist'?"),
        (("datasets", "fetch"), 2, "Missing argument"),
        (("datasets", "ftch"), 2, "ftch"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, trained, arguments, code, message):
    outcome = ringlet(*arguments)
    assert (outcome.code, message in outcome.stderr) == (code, True), outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_damaged_model_file_is_refused(ringlet, trained):
    content = bytearray((trained / "model.safetensors").read_bytes())
    content[-1] ^= 1
    Path("damaged.safetensors").write_bytes(content)
    outcome = ringlet("evaluate", "damaged.safetensors")
    assert outcome.code == 1
    assert "damaged" in outcome.stderr


def test_models_lists_the_zoo_with_parameters(ringlet):
    listed = {entry["name"]: entry["parameters"] for entry in json.loads(ringlet("models", "--json").stdout)["models"]}
    assert listed["simplecnn"] == 149_210
    assert listed["resnet50"] == 25_557_032


def test_models_shows_the_layers_of_one(ringlet):
    outcome = ringlet("models", "simplecnn")
    assert "(1152, 128)" in outcome.stdout
    assert "149,210 parameters" in outcome.stdout
    assert "1.99 MFLOP training" in outcome.stdout


def test_datasets_lists_what_is_built_in(ringlet):
    entries = {entry["name"]: entry for entry in json.loads(ringlet("datasets", "--json").stdout)["datasets"]}
    assert entries["digits"]["present"] is True
    assert entries["mnist"]["present"] is False
    assert "digits" in ringlet("datasets").stdout


def test_doctor_says_what_works_and_how_to_get_the_rest(ringlet):
    checks = {check["name"]: check for check in json.loads(ringlet("doctor", "--json").stdout)["checks"]}
    assert checks["numpy"]["status"] == "ok"
    assert {"Python", "Compiled kernels", "BLAS", "MPI", "PyTorch", "Data cache"} <= set(checks)
    assert all(check["advice"] for check in checks.values() if check["status"] != "ok")
    assert checks["Keras"]["advice"] in ("", checks["TensorFlow"]["advice"])
    said = ringlet("doctor").stdout
    assert "Ringlet can train here." in said
    assert said.count("Convolutions measured") == 1
    assert said.count('"ringlet[keras]"') <= 1


def test_version_and_help(ringlet):
    assert ringlet("--version").stdout == f"ringlet {package.__version__}\n"
    assert all(verb in ringlet("--help").stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(ringlet, verb):
    outcome = ringlet(verb, "--help")
    assert outcome.code == 0
    assert "Usage: ringlet" in outcome.stdout


def loaded_modules(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_modules("import ringlet") & {"numpy", "pydantic", "typer", "rich", "torch", "safetensors"}


def test_help_loads_no_arithmetic():
    code = "from ringlet.cli.main import main\nmain(['--help'])"
    assert not loaded_modules(code) & {"numpy", "torch", "safetensors", "ringlet.config", "ringlet.models"}


def test_help_of_train_loads_no_arithmetic_and_no_layout_engine():
    code = "from ringlet.cli.main import main\nmain(['train', '--help'])"
    assert not loaded_modules(code) & {"numpy", "rich", "safetensors", "ringlet.data", "ringlet.models"}


def test_help_of_train_is_short_and_names_the_topics(ringlet):
    text = ringlet("train", "--help").stdout
    assert text.count("\n  --") < 30
    assert "--model NAME" in text
    assert all(section.name in text for section in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_every_option_is_explained_by_its_topic(ringlet, section):
    text = ringlet("train", "--help", section.name).stdout
    assert text.startswith(f"{section.title}:\n")
    for row in rows(section):
        if (row.metavar and not row.path.endswith(".name")) or section.kind == "plain":
            assert f"--{row.path.replace('_', '-')}" in text, row.path


def test_an_unknown_topic_is_an_error_with_the_nearest(ringlet):
    outcome = ringlet("train", "--help", "optimiser")
    assert outcome.code == 2
    assert "unknown help topic 'optimiser'. Did you mean 'optimizer'?" in outcome.stderr


def test_other_names_are_listed_with_what_they_mean(ringlet):
    text = ringlet("train", "--help", "aliases").stdout
    assert re.search(r"^  --batch-size +--training\.local-batch-size$", text, re.MULTILINE)
    assert re.search(r"^  --enable-gpu +no effect", text, re.MULTILINE)


def test_training_loads_no_framework():
    assert not loaded_modules("import ringlet; ringlet.Trainer") & {
        "torch",
        "tensorflow",
        "keras",
        "jax",
        "typer",
        "rich",
    }


def test_public_names_exist():
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        _ = package.Trainr


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[31mb", "a\ufffd[31mb"), ("a\nb", "a\ufffdb"), ("é [bold]", "é [bold]"), ("\u202ex", "\ufffdx")],
)
def test_control_characters_are_replaced(text, shown):
    assert clean(text) == shown


def test_shares_are_shown_in_per_cent():
    assert (format_metric("val_accuracy", 0.5), format_metric("loss", 0.5)) == ("50.00%", "0.50000")


def test_a_pipe_gets_the_plain_display():
    from ringlet.cli.display import errors_console

    assert isinstance(create_display(errors_console()), PlainDisplay)

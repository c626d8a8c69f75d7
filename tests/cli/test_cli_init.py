"""``ringlet init`` and ``ringlet config``: files for people, where values come from, what is wrong with a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from ringlet.config import RunConfig, gather
from ringlet.config.describe import template
from ringlet.config.sections import SECTIONS

DEFAULT_LINE = re.compile(r"^#(?=\w)", re.MULTILINE)
ONE_OF_EACH = {
    "model": "resnet20",
    "model_options": {"width": 8, "bias": True, "kind": 'a "quoted" \\ text'},
    "input_shape": (3, 32, 32),
    "lr_schedulers": ("warm_up", "cosine"),
    "warm_up_epochs": 2.0,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "momentum": 0.9,
    "nesterov": True,
    "strategy": "bmuf:4,classical",
    "run_dir": "runs/ü\n",
}


def test_init_writes_a_file_with_what_was_given_and_does_not_replace_it(ringlet):
    first = ringlet("init", "--model", "resnet20", "--dataset", "cifar10", "--lr-schedulers", "warm_up,cosine")
    assert (first.code, first.stdout) == (0, "run.toml\n")
    text = Path("run.toml").read_text()
    assert _without_empty(tomllib.loads(text)) == {
        "model": {"name": "resnet20"},
        "dataset": {"name": "cifar10"},
        "schedule": {"warm_up": {"epochs": 5.0}, "cosine": {"min_lr": 0.0}},
    }
    second = ringlet("init")
    assert second.code == 2
    assert "'run.toml' exists: give another name, or --force" in second.stderr
    assert Path("run.toml").read_text() == text
    assert ringlet("init", "--force").code == 0
    assert _without_empty(tomllib.loads(Path("run.toml").read_text())) == {}
    assert [path.name for path in Path().iterdir()] == ["run.toml"]


def test_the_file_trains_as_it_is(ringlet):
    ringlet("init", "small.toml", "--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "2")
    outcome = ringlet("train", "small.toml", "--kernels", "reference", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["num_steps"] == 2
    assert ringlet("train", "--config", "small.toml", "--kernels", "reference").code == 0


def _without_empty(table):
    return {name: value for name, value in table.items() if value != {}}


def test_all_defaults_uncommented_build_the_default_configuration():
    lines = template(RunConfig()).splitlines()
    commented = [number for number, line in enumerate(lines) if re.match(r"#\[", line)]
    plain = [number for number, line in enumerate(lines) if re.match(r"\[|# ----", line)]
    kept = [
        line.removeprefix("#") if DEFAULT_LINE.match(line) else line
        for number, line in enumerate(lines)
        if max([0, *(place for place in commented if place <= number)])
        <= max([0, *(place for place in plain if place <= number)])
    ]
    Path("all.toml").write_text("\n".join(kept))
    assert gather(Path("all.toml")).build() == RunConfig()
    assert len(gather(Path("all.toml")).given) > 25


def test_every_section_and_component_stands_in_the_file_with_its_options():
    text = template(RunConfig())
    for section in SECTIONS:
        assert f"# ---- {section.title} ---" in text
    assert re.search(r"^# .+\n#   local_batch_size = INT$", text, re.MULTILINE)
    assert "\n#[schedule.warm_up]\n# Epochs of linear growth to the learning rate\n#epochs = 5.0\n" in text
    assert max(map(len, text.splitlines())) <= 120


def test_given_values_of_every_kind_read_back():
    config = RunConfig(**ONE_OF_EACH)
    Path("given.toml").write_text(template(config))
    assert gather(Path("given.toml")).build() == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("init", "--model", "resnt20"), "Did you mean 'resnet20'?"),
        (("init", "--num-epochs", "x"), "--num-epochs: expected a whole number"),
        (("init", "."), "'.' is a folder"),
        (("init", "missing/run.toml"), "cannot write missing/run.toml: No such file or directory"),
        (("train", "a.toml", "--config", "b.toml"), "two configuration files, 'a.toml' and 'b.toml'"),
        (("train", "resnet20"), "Options begin with --, such as --model resnet20"),
    ],
)
def test_a_wrong_line_leaves_nothing(ringlet, arguments, message):
    outcome = ringlet(*arguments)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert list(Path().iterdir()) == []


def test_show_says_where_each_value_comes_from(ringlet, monkeypatch):
    Path("run.toml").write_text('# first\nmodel = "simplecnn"\nseed = 1\nbatch-size = 8\n')
    monkeypatch.setenv("RINGLET_SEED", "2")
    outcome = ringlet("config", "show", "run.toml", "--num-epochs", "3", "--blocking-mpi", "--json")
    options = json.loads(outcome.stdout)["options"]
    assert options["model.name"] == {"value": "simplecnn", "source": "run.toml, line 2: model"}
    assert options["training.seed"] == {"value": 2, "source": "RINGLET_SEED"}
    assert options["training.local_batch_size"] == {"value": 8, "source": "run.toml, line 4: batch_size"}
    assert options["training.num_epochs"] == {"value": 3, "source": "--num-epochs"}
    assert options["strategy.overlap"] == {"value": "off", "source": "--blocking-mpi"}
    assert options["dataset.name"] == {"value": "digits", "source": "default"}
    assert set(RunConfig().flat()) <= set(options)


def test_show_can_leave_defaults_out(ringlet):
    outcome = ringlet("config", "show", "--seed", "5", "--optimizer", "adam", "--changed")
    rows = [line.split("│")[1:4] for line in outcome.stdout.splitlines() if line.startswith("│")][1:]
    assert [[cell.strip() for cell in row] for row in rows] == [["training.seed", "5", "--seed"]]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('seed = 1\nmodle = "x"\n', ["unknown option 'modle' (f.toml, line 2: modle). Did you mean 'model'?"]),
        ('"num-epochs" = -1\n', ["f.toml, line 1: num_epochs: -1 is out of range, expected at least 0"]),
        ("a = '''\nseed = 1\n'''\nseed = 'x'", ["f.toml, line 4: seed: expected a whole number, received 'x'"]),
        ('optimizer = "adm"\nengine = "tf"\n', ["line 1: optimizer: unknown", "line 2: engine: unknown engine 'tf'"]),
        ('seed = 1\nmodel = "resnt20"\n', ["line 2: model: unknown model"]),
        ('[optimizer]\nname = "lars"\n\ntrust = -1\n', ["f.toml, line 4: optimizer.trust: -1 is out of range"]),
        ("[optimizer]\ntrust = 0.1\n", ["f.toml, line 2: optimizer.trust: optimizer 'adam' has no option 'trust'"]),
        ("[schedule.step]\nfactor = 1.0\nevery = 2\n", ["line 2: schedule.step.factor: 1.0 is out of range"]),
        (
            "[traning]\nnum_epochs = 3\n",
            ["line 1: traning). Did you mean 'training'?"],
        ),
        ("[schedule.stepp]\n", ["line 1: schedule.stepp: unknown scheduler 'stepp'. Did you mean 'step'?"]),
        ('dataset = "digit"\nmetrics = ["acuracy"]\n', ["line 1: dataset: unknown data set", "line 2: metrics: unkn"]),
        ('model = "unet"\nmodel_options = { levls = 3 }\n', ["line 2: model_options: unknown option", "'levels'"]),
        ('[model]\nname = "unet"\nlevls = 3\n', ["line 3: model.levls: unknown option", "'levels'"]),
        ("[training]\nnum_epoch = 3\n", ["line 2: training.num_epoch: no such option. Did you mean 'num_epochs'?"]),
        ("model = resnet20\n", ["(at line 1", 'Text stands in quotes: "resnet20"']),
        ("seed = 1\nexact = True\n", ["(at line 2", "exact = True", "Write true"]),
        ("threads = None\n", ["Leave the line out"]),
        ("num_epochs: 5\n", ["num_epochs: 5", "Expected lines such as: num_epochs = 5"]),
        ("clip_value = 1.0\nclip_norm = 1.0\n", ["clip_value and clip_norm exclude each other"]),
    ],
)
def test_check_names_the_line_and_the_remedy(ringlet, text, messages):
    Path("f.toml").write_text(text)
    outcome = ringlet("config", "check", "f.toml")
    assert outcome.code == 2
    assert outcome.stderr.startswith("error: ")
    assert [message for message in messages if message not in outcome.stderr] == [], outcome.stderr


def test_check_accepts_a_good_file(ringlet):
    Path("f.toml").write_text("seed = 1\nnum-epochs = 3\nenable_gpu = true\n")
    outcome = ringlet("config", "check", "f.toml")
    assert (outcome.code, outcome.stdout) == (0, "f.toml: 3 options set, no mistakes\n")
    assert "note: enable_gpu: no effect" in outcome.stderr


def test_the_schema_accepts_what_training_accepts_and_nothing_else(ringlet):
    schema = json.loads(ringlet("config", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    lists = {"lr_schedulers": "warm_up,cosine", "image_size": 128}
    file = tomllib.loads(template(RunConfig(**ONE_OF_EACH)))
    for good in (RunConfig().to_dict(), {"image_size": [8, 8]}, lists, file, {"optimizer": "sgd", "momentum": 0.5}):
        assert list(check.iter_errors(good)) == []
    for bad in (
        {"modle": "x"},
        {"num_epochs": -1},
        {"training": {"num_epochs": -1}},
        {"training": {"num_epoch": 1}},
        {"seed": "x"},
        {"momentum": 1},
        {"keep": None},
        {"schedule": {"warm_up": {"epochs": -1}}},
    ):
        assert list(check.iter_errors(bad)) != [], bad


def test_the_schema_describes_every_section_and_marks_older_names(ringlet):
    properties = json.loads(ringlet("config", "schema").stdout)["properties"]
    assert list(properties)[: len(SECTIONS)] == [section.name for section in SECTIONS]
    assert properties["batch_size"]["deprecated"] is True
    assert properties["training"]["properties"]["seed"]["description"].startswith("seed of weights")
    assert properties["training"]["properties"]["seed"]["default"] == 0

"""``ringlet init`` and ``ringlet config``: files for people, where values come from, what is wrong with a file."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from ringlet.config import RunConfig, gather
from ringlet.config.template import template

DEFAULT_LINE = re.compile(r"^#(?=\w)", re.MULTILINE)
ONE_OF_EACH = {
    "model": "resnet20",
    "model_options": {"width": 8, "bias": True, "kind": 'a "quoted" \\ text'},
    "input_shape": (3, 32, 32),
    "lr_schedulers": ("warm_up", "cosine"),
    "learning_rate": 0.1,
    "nesterov": True,
    "run_dir": "runs/ü\n",
}


def test_init_writes_a_file_with_what_was_given_and_does_not_replace_it(ringlet):
    first = ringlet("init", "--model", "resnet20", "--dataset", "cifar10", "--lr-schedulers", "warm_up,cosine")
    assert (first.code, first.stdout) == (0, "run.toml\n")
    text = Path("run.toml").read_text()
    chosen = {"model": "resnet20", "dataset": "cifar10", "lr_schedulers": ["warm_up", "cosine"]}
    assert tomllib.loads(text) == chosen
    second = ringlet("init")
    assert second.code == 2
    assert "'run.toml' exists: give another name, or --force" in second.stderr
    assert Path("run.toml").read_text() == text
    assert ringlet("init", "--force").code == 0
    assert tomllib.loads(Path("run.toml").read_text()) == {}
    assert [path.name for path in Path().iterdir()] == ["run.toml"]


def test_the_file_trains_as_it_is(ringlet):
    ringlet("init", "small.toml", "--model", "simplecnn", "--num-epochs", "1", "--steps-per-epoch", "2")
    outcome = ringlet("train", "small.toml", "--kernels", "reference", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.stdout)["num_steps"] == 2
    assert ringlet("train", "--config", "small.toml", "--kernels", "reference").code == 0


def test_all_defaults_uncommented_build_the_default_configuration():
    text = DEFAULT_LINE.sub("", template({}))
    Path("all.toml").write_text(text)
    with_default = {name for name, field in RunConfig.model_fields.items() if field.default is not None}
    assert set(tomllib.loads(text)) == with_default
    assert gather(Path("all.toml")).build().to_dict() == RunConfig().to_dict()


def test_every_option_stands_in_the_file_with_its_meaning():
    text = template({})
    for name in RunConfig.names():
        assert re.search(rf"^# .+\n#(   )?{name} = ", text, re.MULTILINE), name
    assert "# ---- Optimizer ---" in text
    assert max(map(len, text.splitlines())) <= 120


def test_given_values_of_every_kind_read_back():
    Path("given.toml").write_text(template(ONE_OF_EACH))
    assert gather(Path("given.toml")).values == ONE_OF_EACH


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
    assert options["model"] == {"value": "simplecnn", "source": "run.toml, line 2"}
    assert options["seed"] == {"value": 2, "source": "RINGLET_SEED"}
    assert options["local_batch_size"] == {"value": 8, "source": "run.toml, line 4: batch_size"}
    assert options["num_epochs"] == {"value": 3, "source": "--num-epochs"}
    assert options["overlap"] == {"value": "off", "source": "follows from others"}
    assert options["dataset"] == {"value": "digits", "source": "default"}
    assert set(options) == set(RunConfig.names())


def test_show_can_leave_defaults_out(ringlet):
    outcome = ringlet("config", "show", "--seed", "5", "--optimizer", "adam", "--changed")
    rows = [line.split("│")[1:4] for line in outcome.stdout.splitlines() if line.startswith("│")][1:]
    assert [[cell.strip() for cell in row] for row in rows] == [["seed", "5", "--seed"]]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ('seed = 1\nmodle = "x"\n', ["unknown option 'modle' (f.toml, line 2: modle). Did you mean 'model'?"]),
        ('"num-epochs" = -1\n', ["f.toml, line 1: num_epochs: -1 is out of range, expected at least 0"]),
        ("a = '''\nseed = 1\n'''\nseed = 'x'", ["f.toml, line 4: seed: expected a whole number, received 'x'"]),
        ('model = "resnt20"\noptimizer = "adm"\n', ["line 1: model: unknown model", "line 2: optimizer: unknown"]),
        ('dataset = "digit"\nmetrics = ["acuracy"]\n', ["line 1: dataset: unknown data set", "line 2: metrics: unkn"]),
        ('model = "unet"\nmodel_options = { levls = 3 }\n', ["line 2: model_options: unknown option", "'levels'"]),
        ("[training]\nnum_epochs = 3\n", ["line 1: training: a configuration has no sections"]),
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
    for good in (RunConfig().to_dict(), {"image_size": [8, 8]}, lists, tomllib.loads(template(ONE_OF_EACH))):
        assert list(check.iter_errors(good)) == []
    for bad in ({"modle": "x"}, {"num_epochs": -1}, {"seed": "x"}, {"momentum": 1}, {"engine": "tf"}, {"keep": None}):
        assert list(check.iter_errors(bad)) != [], bad


def test_the_schema_describes_every_option(ringlet):
    properties = json.loads(ringlet("config", "schema").stdout)["properties"]
    assert list(properties) == RunConfig.names()
    for name, field in RunConfig.model_fields.items():
        assert properties[name]["description"] == field.description
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        assert properties[name].get("default") == default

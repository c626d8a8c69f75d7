"""Shell completion: bash really runs, the answers for zsh and fish are looked at, and nothing heavy is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringlet import optim
from ringlet.cli import known
from ringlet.cli.main import VERBS
from ringlet.config.strategy_choice import StrategyChoice
from ringlet.data.registry import catalogue
from ringlet.data.registry import dataset_names
from ringlet.models import zoo
from ringlet.optim.metric_names import LOSS_NAMES, METRIC_NAMES

LINES = {
    "verb": ("ringlet", "tr"),
    "option": ("ringlet", "train", "--opti"),
    "underscore": ("ringlet", "train", "--batch_s"),
    "value": ("ringlet", "train", "--optimizer", "ada"),
    "value behind =": ("ringlet", "resume", "runs/night", "--engine", "=", "n"),
    "nothing behind =": ("ringlet", "export", "--to", "="),
    "model": ("ringlet", "train", "--model", "resnet15"),
    "list": ("ringlet", "train", "--lr-schedulers", "warm_up,c"),
    "path behind colon": ("ringlet", "train", "--dataset", "folder", ":", "ph"),
    "run": ("ringlet", "resume", ""),
    "model file": ("ringlet", "evaluate", "mo"),
    "sub-command": ("ringlet", "sql", "s"),
    "script": ("ringlet", "run", "-n", "2", "train.py", "--n"),
    "file": ("ringlet", "train", ""),
}
ANSWERS = {
    "verb": ["train"],
    "option": ["--optimizer"],
    "underscore": ["--batch-size"],
    "value": ["adam", "adamw", "adadelta"],
    "value behind =": ["native"],
    "nothing behind =": ["openvino", "onnx", "torch", "keras"],
    "model": ["resnet152"],
    "list": ["warm_up,cosine"],
    "path behind colon": ["photos/"],
    "run": ["runs/night", "photos/", "runs/"],
    "model file": ["model.safetensors"],
    "sub-command": ["score"],
    "script": [],
    "file": [],
}


@pytest.fixture
def folder(own_folder: Path) -> Path:
    """A folder with a run, a model file, images, and a program ``ringlet``."""
    (own_folder / "runs" / "night").mkdir(parents=True)
    (own_folder / "runs" / "night" / "config.toml").touch()
    (own_folder / "runs" / "other").mkdir()
    (own_folder / "photos").mkdir()
    (own_folder / "model.safetensors").touch()
    program = own_folder.parent / "bin" / "ringlet"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ringlet "$@"\n')
    program.chmod(0o755)
    return own_folder


def environment(folder: Path) -> dict[str, str]:
    path = f"{folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_verbs_options_values_and_run_directories(folder):
    script = ['eval "$(ringlet completion bash)"']
    for words in LINES.values():
        quoted = " ".join(f"'{word}'" for word in words)
        script += [f"COMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1} COMPREPLY=()", "_ringlet"]
        script += ['printf "%s\\t" "${COMPREPLY[@]}"; echo']
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(script)], env=environment(folder), text=True, capture_output=True, check=True
    )
    answers = [line.split("\t")[:-1] for line in done.stdout.splitlines()]
    found = {name: [word for word in answer if word] for name, answer in zip(LINES, answers, strict=True)}
    assert found == ANSWERS
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_of_another_shell_is_accepted_by_it(folder, shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"needs {shell}")
    script = subprocess.run(
        ["ringlet", "completion", shell], env=environment(folder), text=True, capture_output=True, check=True
    ).stdout
    subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_the_answers_for_fish_carry_meanings(ringlet):
    lines = ringlet("completion", "answer", "fish", "train", "--see").stdout.splitlines()
    assert lines == ["--seed\tseed of weights, sample order, dropout and augmentation"]
    verbs = ringlet("completion", "answer", "fish", "").stdout.splitlines()
    assert verbs == [f"{verb}\t{meaning}" for verb, meaning in VERBS.items()]


def test_the_answers_for_zsh_carry_meanings_behind_an_unescaped_colon(ringlet):
    assert ringlet("completion", "answer", "zsh", "train", "--dataset", "np").stdout == "npz\\::your files\n"
    assert ringlet("completion", "answer", "zsh", "train", "--dataset=mn").stdout == "--dataset=mnist:can be fetched\n"


def test_an_option_is_offered_once(ringlet):
    again = ringlet("completion", "answer", "fish", "train", "--seed", "1", "--se").stdout
    assert again == ""


@pytest.mark.parametrize("words", [(), ("",), ("nothing", ""), ("train", "--nothing", ""), ("sql", "x", "--"), ("-",)])
def test_odd_lines_are_answered_without_an_error(ringlet, words):
    outcome = ringlet("completion", "answer", "bash", *words)
    assert (outcome.code, outcome.stderr) == (0, "")


@pytest.mark.parametrize("verb", VERBS)
def test_the_options_of_every_verb_are_completed(ringlet, verb):
    lines = ringlet("completion", "answer", "bash", verb, "--").stdout.splitlines()
    assert "--help" in lines
    assert all(line.startswith("--") for line in lines)


def test_the_names_are_those_of_the_packages():
    listed = {entry.name: entry.origin for entry in catalogue()}
    assert set(known.BUILT_IN) == {name for name, origin in listed.items() if origin == "built-in"}
    assert set(known.FETCHED) == {name for name, origin in listed.items() if origin == "downloadable"}
    assert set(known.OWN_FILES) == {name for name, origin in listed.items() if origin == "your files"}
    assert {*known.BUILT_IN, *known.FETCHED, *known.OWN_FILES} <= set(dataset_names())
    assert tuple(optim.names()) == known.OPTIMIZERS
    assert (known.LOSSES, known.METRICS) == (LOSS_NAMES, METRIC_NAMES)
    assert [name for name, _ in known.models("")] == zoo.names()
    for form in known.STRATEGIES:
        StrategyChoice.parse(f"{form}2" if form.endswith(":") else form)


def test_answers_load_nothing_heavy(folder):
    code = "from ringlet.cli.main import main\nmain({words})\nimport sys; print(*sys.modules)"
    light = {"numpy", "rich", "torch", "safetensors", "ringlet.data", "ringlet.training"}
    for words, more in (
        (["train", "--l"], set()),
        (["train", "--model", ""], {"pydantic", "ringlet.config"}),
        ([""], {"pydantic", "ringlet.config"}),
    ):
        command = [sys.executable, "-c", code.format(words=["completion", "answer", "bash", *words])]
        done = subprocess.run(command, env=environment(folder), text=True, capture_output=True, check=True)
        assert not set(done.stdout.split()) & (light | more), words


def test_an_unknown_shell_is_refused(ringlet):
    outcome = ringlet("completion", "bahs")
    assert outcome.code == 2
    assert "unknown shell 'bahs'. Did you mean 'bash'?" in outcome.stderr

"""Shell completion: bash really runs, the answers for zsh and fish are looked at, and nothing heavy is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringlet.cli.main import VERBS

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
    assert lines == ["--seed\tof weights, sample order, dropout and augmentation (default: 0)"]
    verbs = ringlet("completion", "answer", "fish", "").stdout.splitlines()
    assert verbs == [f"{verb}\t{meaning}" for verb, meaning in VERBS.items()]


def test_the_answers_for_zsh_carry_meanings_behind_an_unescaped_colon(ringlet):
    assert (
        ringlet("completion", "answer", "zsh", "train", "--dataset", "np").stdout
        == "npz\\::an npz file with images or features, and classes, labels, masks or values\n"
    )
    assert (
        ringlet("completion", "answer", "zsh", "train", "--dataset=mn").stdout
        == "--dataset=mnist:60,000 + 10,000 handwritten digits\n"
    )


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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("train", "--optimizer", "ad"), ["adadelta", "adam", "adamw"]),
        (("train", "--optimizer.tr"), ["--optimizer.trust"]),
        (("train", "--schedule", "warm_up,cos"), ["warm_up,cosine"]),
        (("train", "--lr-schedulers", "st"), ["step", "stop_at_loss"]),
        (("train", "--strategy", "a"), ["async", "average:"]),
        (("train", "--strategy.compression", "b"), ["bf16"]),
        (("train", "--compression", "t"), ["topk:"]),
        (("train", "--overlap=o"), ["--overlap=on", "--overlap=off"]),
        (("train", "--loss-func", "bce"), ["bce_dice"]),
        (("init", "--metrics", "accuracy,m"), ["accuracy,mse", "accuracy,mae"]),
        (("datasets", "fetch", "c"), ["cifar10", "cifar100"]),
    ],
)
def test_names_and_values_are_those_of_the_components(ringlet, words, expected):
    lines = ringlet("completion", "answer", "fish", *words).stdout.splitlines()
    assert sorted(line.partition("\t")[0] for line in lines) == sorted(expected)


def test_answers_load_nothing_heavy(folder):
    code = "from ringlet.cli.main import main\nmain({words})\nimport sys; print(*sys.modules)"
    light = {"rich", "torch", "safetensors", "ringlet.training"}
    for words, more in (
        (["train", "--optimizer", ""], set()),
        (["train", "--model", ""], {"ringlet.config", "ringlet.data"}),
        ([""], {"numpy", "pydantic", "ringlet.config"}),
    ):
        command = [sys.executable, "-c", code.format(words=["completion", "answer", "bash", *words])]
        done = subprocess.run(command, env=environment(folder), text=True, capture_output=True, check=True)
        assert not set(done.stdout.split()) & (light | more), words


def test_an_unknown_shell_is_refused(ringlet):
    outcome = ringlet("completion", "bahs")
    assert outcome.code == 2
    assert "unknown shell 'bahs'. Did you mean 'bash'?" in outcome.stderr

"""Real studies of a tiny network: from start to end, interrupted and killed, with failures, and wrong command lines."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from ringlet.study.runner import failure_reason, run_environment

TINY = ("--model", "simplemlp", "--dataset", "synthetic", "--input-shape", "1,4,4", "--launcher", "local")
SMALL = (*TINY, "--steps", "4", "--batch", "8", "--num-samples", "80", "--epochs", "2")


def records(study: Path) -> dict[str, bytes]:
    return {str(file.relative_to(study)): file.read_bytes() for file in (study / "cells").glob("*/*.json")}


def test_a_study_that_is_killed_and_interrupted_goes_on_where_it_was(begin, own_folder: Path) -> None:
    study = own_folder / "s"
    command = [sys.executable, "-m", "ringlet", "study"]
    first = begin([*command, *SMALL, "-n", "1,2", "--repeats", "2", "--study-dir", "s"], cwd=own_folder)
    first.wait_for("[1/4]", stream="stderr")
    first.process.kill()
    first.wait_until_all_gone()
    first.finish()
    kept = records(study)
    assert len(kept) == 1

    second = begin([*command, "s"], cwd=own_folder)
    second.wait_for("[2/4]", stream="stderr")
    second.process.send_signal(signal.SIGINT)
    done = second.finish()
    assert done.returncode == 5, done.stderr
    assert "To go on: ringlet study s" in done.stderr
    after = records(study)
    assert 2 <= len(after) < 4
    assert kept.items() <= after.items()

    done = begin([*command, "s"], cwd=own_folder).finish()
    assert done.returncode == 0, done.stderr
    everything = records(study)
    assert len(everything) == 4
    assert after.items() <= everything.items()
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert "model simplemlp" in lines[0]
    assert [line.split()[1] for line in lines if re.match(r"│ \d", line)] == ["1", "2"]
    assert lines[-1].startswith("simplemlp: The second worker")
    document = json.loads((study / "study.json").read_text())
    assert [own["workers"] for own in document["cells"]] == [1, 2]
    assert all(
        len(own["runs"]) == 2 and own["runs"]["1"]["epochs"][1]["num_samples"] == 32 for own in document["cells"]
    )
    assert not list(study.glob("cells/*/r*/model.safetensors"))


def test_a_failed_cell_does_not_stop_the_others_and_can_be_tried_again(ringlet, own_folder: Path) -> None:
    outcome = ringlet("study", *SMALL, "-n", "1", "--strategy", "sync,softsync:2", "--repeats", "1", "--study-dir", "s")
    assert outcome.code == 1
    assert "failed, exit code" in outcome.stderr
    assert "softsync" in outcome.stdout
    before = records(own_folder / "s")
    again = ringlet("study", "s", "--json")
    assert again.code == 1
    assert records(own_folder / "s") == before
    cells = json.loads(again.stdout)["cells"]
    assert [bool(own["failures"]) for own in cells] == [False, True]
    assert ringlet("study", "s", "--retry-failed").stderr.count("failed, exit code") == 1


def test_with_and_without_data_distribution_side_by_side(ringlet, own_folder: Path) -> None:
    file = own_folder / "both.toml"
    file.write_text(
        'model = "simplemlp"\ndataset = "synthetic"\ninput_shape = [1, 4, 4]\nlauncher = "local"\nworkers = 2\n'
        'batch = 8\nsteps = "all"\nnum_samples = 80\nepochs = 2\nrepeats = 1\ndistribution = "both"\n'
    )
    outcome = ringlet("study", "both.toml", "--study-dir", "s", "--by-epoch", "--target-accuracy", "0.99")
    assert outcome.code == 0, outcome.stderr
    cells = json.loads((own_folder / "s" / "study.json").read_text())["cells"]
    samples = [own["runs"]["1"]["epochs"][0]["num_samples"] for own in cells]
    assert samples == [72, 144]
    assert "all each" in outcome.stdout
    assert "data shared out: s" in outcome.stdout
    assert "training with data distribution" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "troch"), "unknown engine 'troch'. Did you mean 'torch'?"),
        (("-n", "1,8", "--batch", "4"), "8 workers are more than the 4 samples of a batch"),
        (("--model", ","), "the grid is empty"),
        (
            ("--scaling", "string"),
            "scaling: 'string' is not known, expected 'strong' or 'weak'",
        ),
        (("--local-batch-size", "4"), "unknown option '--local-batch-size'"),
        (("--target", "x=1", "--target-accuracy", "1"), "exclude each other"),
        (("nowhere",), "'nowhere' holds no study"),
        (("nowhere", "--engine", "torch"), "leave out --engine"),
        (("missing.toml",), "configuration file 'missing.toml' does not exist"),
    ],
)
def test_wrong_command_lines_are_explained_and_leave_nothing(ringlet, own_folder: Path, words, message) -> None:
    outcome = ringlet("study", *words)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert list(own_folder.iterdir()) == []


def test_runs_get_no_options_from_the_environment_and_the_backend_of_their_cell() -> None:
    given = {"RINGLET_MODEL": "vgg1", "RINGLET_CACHE": "c", "KERAS_BACKEND": "torch", "HOME": "h"}
    assert run_environment("keras:jax", given).items() >= {"RINGLET_CACHE": "c", "KERAS_BACKEND": "jax"}.items()
    assert "RINGLET_MODEL" not in run_environment("native", given)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("note: x\nerror: it broke\n       mend it\n", "exit code 1: it broke mend it"),
        ("Traceback\n  File\nValueError: odd\x1b[0m\n", "exit code 1: ValueError: odd [0m"),
        ("", "exit code 1: nothing was printed"),
    ],
)
def test_the_reason_of_a_failure_is_in_the_words_of_the_run(tmp_path: Path, text: str, reason: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert failure_reason(log, 1) == reason

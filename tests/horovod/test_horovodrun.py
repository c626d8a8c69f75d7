"""horovodrun's command line, and what belongs to a script or module of one's own."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ringlet
from ringlet.cli.horovodrun import main
from ringlet.errors import UsageError
from ringlet.launch.horovodrun import OPTIONS, translated, without_interpreter

HERE = Path(__file__).parent
QUICK = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONPATH": os.pathsep.join([str(Path(ringlet.__file__).parents[1]), str(HERE.with_name("quick_imports"))]),
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def test_options_become_those_of_ringlet_run() -> None:
    line = "--num-proc 4 -H a:2,b:2 --output-filename=logs --min-np 2 --reset-limit 3 --mpi --threads 1"
    expected = "--num-workers 4 --hosts a:2,b:2 --output logs --min-workers 2 --restarts 3 --launcher mpi --threads 1"
    assert translated(line.split()).words == expected.split()


def test_options_about_timelines_and_stalls_become_variables() -> None:
    line = "--timeline-filename t.json --timeline-mark-cycles --no-stall-check --stall-check-warning-time-seconds 5"
    assert translated(line.split()).variables == {
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
    }


def test_every_other_option_has_a_reason() -> None:
    for option in OPTIONS:
        line = [option.names[0], *(["x"] if option.takes_value else [])]
        if option.is_refused:
            with pytest.raises(UsageError, match=f"{option.names[0]} cannot be used: "):
                translated(line)
        elif option.reason:
            assert translated(line).remarks == [f"{option.names[0]} changes nothing: {option.reason}"]
        else:
            assert option.becomes or option.variable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py -u", "train.py -u"),
        ("/usr/bin/python3.11 -u -B train.py", "train.py"),
        ("python3 -m package.train --lr 1", "-m package.train --lr 1"),
        ("train.py python", "train.py python"),
    ],
)
def test_the_interpreter_is_left_out(line: str, expected: str) -> None:
    assert without_interpreter(line.split()) == expected.split()


@pytest.mark.parametrize("line", ["python", "python3 -c pass", "python -X dev train.py"])
def test_what_workers_cannot_run_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="expected a script, or -m and a module"):
        without_interpreter(line.split())


def test_horovodrun_names_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "0.28.1\n"


def test_all_words_after_a_module_are_its_own(begin: Any, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import sys\nprint(sys.argv[1:])\n")
    words = ["--log-level", "DEBUG", "-np", "1", "python", "-u", "-m", "module", "-n", "3", "--horovod", "-m", "x"]
    done = begin([sys.executable, "-m", "ringlet.cli.horovodrun", *words], {"PYTHONPATH": path(tmp_path)}).finish()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['-n', '3', '--horovod', '-m', 'x']\n"
    assert "--log-level changes nothing" in done.stderr


def path(*folders: Path) -> str:
    return os.pathsep.join(map(str, [Path(ringlet.__file__).parents[1], *folders]))


def test_without_the_option_a_missing_horovod_says_what_to_do(begin: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import horovod.torch\n")
    done = begin([sys.executable, "-m", "ringlet", "run", "-n", "1", str(script)], {}).finish()
    assert "when they are started with: ringlet run --horovod" in done.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_function_is_run_on_new_ranks(begin: Any) -> None:
    command = [sys.executable, "-m", "ringlet", "run", "--horovod", str(HERE / "run_function_program.py")]
    done = begin([*command, "-n", "2", "--rate", "0.5"], {}).finish()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[0, 2, 1.0], [1, 2, 1.0]]\n"


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_names_and_arguments_are_horovods(begin: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ringlet", "run", "--horovod", str(HERE / "check_signatures.py")]
    done = begin([*command, str(tmp_path / "model.keras")], QUICK).finish()
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["problems"] == []
    assert (facts["env"], facts["within"], facts["gpu"]) == ([0, 1], "7", False)
    assert (facts["parts"], facts["powers"]) == ([[1, 2, 3], [4, 5]], [1, 2, 4, 8])
    assert facts["keras 2"] == [0.25, True, True]
    assert facts["loaded"]

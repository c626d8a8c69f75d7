"""A state survives: committed completely or not at all, restored on all ranks from the newest good commit."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from harness import run_ranks
from hypothesis import given, settings
from hypothesis import strategies as st

import ringlet
from ringlet.checkpoint.atomic import write_directory
from ringlet.checkpoint.contents import write_tensors
from ringlet.checkpoint.manifest import Manifest, read_verified
from ringlet.comm.environments import VARIABLES
from ringlet.comm.single import SingleCommunicator
from ringlet.elastic import State
from ringlet.errors import CheckpointError, UnreadableCheckpointError, UsageError

CHECKS = Path(__file__).with_name("elastic_checks.py")


def state_in(directory: Path, **values: Any) -> State:
    return State(directory, communicator=SingleCommunicator(), **values)


def commits_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# -- one process ------------------------------------------------------------------------------------------------------
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
DTYPES = ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16", "bfloat16")


@settings(max_examples=50, deadline=None)
@given(
    value=JSON_VALUES, dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 3), max_size=3), seed=st.integers(0)
)
def test_values_and_arrays_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, value: Any, dtype: str, shape: list[int], seed: int
) -> None:
    directory = tmp_path_factory.mktemp("elastic")
    array = np.random.default_rng(seed).normal(size=shape).astype(np.dtype(dtype))
    state_in(directory, value=value, array=array, number=np.float32(0.1), limit=-np.inf).commit()
    restored = state_in(directory, value="other", array=np.zeros(5), number=0, limit=0)
    assert restored.restore()
    assert restored.value == value
    assert type(restored.value) is type(value)
    assert (restored.array.dtype, restored.array.shape) == (array.dtype, array.shape)
    assert restored.array.tobytes() == array.tobytes()
    assert (type(restored.number), restored.number) == (np.float32, np.float32(0.1))
    assert (type(restored.limit), restored.limit) == (float, -np.inf)
    assert np.dtype(ml_dtypes.bfloat16) == np.dtype("bfloat16")


def test_without_a_commit_nothing_is_restored(tmp_path: Path) -> None:
    state = state_in(tmp_path / "nothing", step=3)
    assert not state.restore()
    assert state.step == 3
    assert not (tmp_path / "nothing").exists()


def test_two_commits_are_kept(tmp_path: Path) -> None:
    state = state_in(tmp_path / "a" / "b", step=0)
    for step in range(5):
        state.step = step
        state.commit()
    assert commits_in(tmp_path / "a" / "b") == ["commit-00000004", "commit-00000005"]


def test_arrays_are_restored_in_place_where_they_fit(tmp_path: Path) -> None:
    weights = np.arange(4.0)
    state = state_in(tmp_path, weights=weights)
    state.commit()
    weights[:] = 0
    assert state.restore()
    assert state.weights is weights
    assert weights.tolist() == [0, 1, 2, 3]


def damage(directory: Path, random_numbers: random.Random) -> str:
    """Flip a bit, cut off or remove a file of a commit; says what was done."""
    path = random_numbers.choice(sorted(directory.iterdir()))
    data = bytearray(path.read_bytes())
    how = random_numbers.choice(["flip", "cut", "remove"])
    place = random_numbers.randrange(len(data))
    if how == "remove":
        path.unlink()
        return f"{path.name} removed"
    if how == "flip":
        data[place] ^= 1 << random_numbers.randrange(8)
    path.write_bytes(data if how == "flip" else data[:place])
    return f"{path.name}: {how} at {place}"


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_told_and_the_previous_commit_used(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    state = state_in(tmp_path, step=1, weights=np.arange(50.0))
    state.commit()
    state.step = 2
    state.commit()
    done = damage(tmp_path / "commit-00000002", random.Random(seed))
    with caplog.at_level(logging.WARNING, "ringlet"):
        assert state.restore(), done
    assert state.step == 1, done
    assert "commit-00000002 is damaged: " in caplog.text
    assert "Commit 1 is used instead" in caplog.text


def test_a_damaged_commit_does_not_count_among_the_two_that_are_kept(tmp_path: Path) -> None:
    state = state_in(tmp_path, step=1)
    state.commit()
    state.commit()
    damage(tmp_path / "commit-00000002", random.Random(1))
    state.restore()
    state.commit()
    assert commits_in(tmp_path) == ["commit-00000001", "commit-00000003"]


def test_a_commit_that_could_not_be_read_stays_until_two_newer_ones_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    state = state_in(tmp_path, step=1)
    state.commit()
    state.commit()

    def read(directory: Path) -> Manifest:
        if directory.name == "commit-00000002":
            raise UnreadableCheckpointError("cannot be read: Input/output error")
        return read_verified(directory)

    monkeypatch.setattr("ringlet.elastic.commits.read_verified", read)
    with caplog.at_level(logging.WARNING, "ringlet"):
        assert state.restore()
    assert "commit-00000002 is unreadable: cannot be read: Input/output error. Commit 1 is used" in caplog.text
    state.commit()
    assert commits_in(tmp_path) == ["commit-00000001", "commit-00000002", "commit-00000003"]
    state.commit()
    assert commits_in(tmp_path) == ["commit-00000003", "commit-00000004"]


def test_if_all_commits_are_damaged_nothing_begins_anew_by_itself(tmp_path: Path) -> None:
    state = state_in(tmp_path, step=1)
    state.commit()
    (tmp_path / "commit-00000001" / "manifest.json").write_text("{}")
    with pytest.raises(CheckpointError, match="no other commit is left: delete them to start from scratch"):
        state.restore()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "commit-1").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    state = state_in(tmp_path, step=1)
    state.commit()
    (tmp_path / "commit-00000001" / "extra.txt").write_text("mine")
    for _ in range(3):
        state.commit()
    expected = ["commit-00000001", "commit-00000003", "commit-00000004", "commit-1", "notes.txt"]
    assert commits_in(tmp_path) == expected


def test_a_writer_that_died_leaves_nothing_for_long(tmp_path: Path) -> None:
    partial = tmp_path / ".commit-00000001.partial-0123456789ab"
    partial.mkdir()
    (partial / "arrays.safetensors").write_bytes(b"half")
    state = state_in(tmp_path, step=1)
    assert not state.restore()
    state.commit()
    assert commits_in(tmp_path) == ["commit-00000001"]


def test_a_script_with_other_names_is_refused(tmp_path: Path) -> None:
    state_in(tmp_path, step=1, weights=np.zeros(2)).commit()
    with pytest.raises(CheckpointError, match="hold step, weights, this state has step: give the same names"):
        state_in(tmp_path, step=1).restore()


@pytest.mark.parametrize("value", [range(3), object(), np.array([None]), lambda: 0])
def test_what_cannot_be_kept_is_refused_at_once(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match=r"'thing' of the state is of type .*, which cannot be kept"):
        state_in(tmp_path, thing=value)
    state = state_in(tmp_path, thing=1)
    with pytest.raises(UsageError, match="which cannot be kept"):
        state.thing = value


@pytest.mark.parametrize("value", [[object()], {"a": np.array([None])}, [range(3)], 10**60])
def test_what_cannot_be_kept_is_refused_by_the_commit(tmp_path: Path, value: Any) -> None:
    state = state_in(tmp_path, thing=value)
    with pytest.raises(CheckpointError):
        state.commit()
    assert commits_in(tmp_path) == []


def test_commits_of_the_earlier_format_are_read(tmp_path: Path) -> None:
    facts = {
        "step": {"kind": "json", "value": 3},
        "options": {"kind": "json", "value": {"kind": "x"}},
        "weights": {"kind": "array"},
        "best": {"kind": "float"},
        "scale": {"kind": "scalar"},
        "waves": {"kind": "array", "type": "complex64", "shape": [1, 2]},
    }
    waves = np.array([[1j, 2]], np.complex64)
    arrays = {
        "weights": np.arange(3.0),
        "best": np.array(np.inf),
        "scale": np.array(2, np.float32),
        "waves": waves.reshape(-1).view(np.uint8),
    }
    files = {"arrays.safetensors": partial(write_tensors, arrays=arrays)}
    write_directory(tmp_path / "commit-00000001", files, {"values": facts})
    state = state_in(tmp_path, step=0, options={}, weights=np.zeros(3), best=0.0, scale=0, waves=0)
    assert state.restore()
    assert (state.step, state.options, state.best) == (3, {"kind": "x"}, np.inf)
    assert (type(state.best), type(state.scale)) == (float, np.float32)
    assert state.weights.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(state.waves, waves)


@pytest.mark.parametrize("name", ["commit", "restore", "_values"])
def test_names_of_the_state_itself_are_taken(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' cannot be a name in a state"):
        state_in(tmp_path, **{name: 1})


def test_names_that_were_not_given_do_not_appear_by_a_slip(tmp_path: Path) -> None:
    state = state_in(tmp_path, step=1)
    with pytest.raises(AttributeError, match="the state has no 'stpe': it has step"):
        state.stpe = 2
    with pytest.raises(AttributeError, match="the state has no 'stpe'"):
        _ = state.stpe
    assert repr(state) == f"State({str(tmp_path)!r}, step=1)"
    assert "step" in dir(state)


# -- many ranks -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("communicator", ["node", "mpi"])
def test_all_ranks_get_what_rank_0_committed(tmp_path: Path, communicator: str) -> None:
    first = run_ranks(
        (CHECKS, "train"), 2, communicator=communicator, arguments={"directory": str(tmp_path), "num_steps": 3}
    )
    assert [result["restored"] for result in first] == [False, False]
    assert first[0]["seen"][:2] == [0, "inf"]
    again = run_ranks(
        (CHECKS, "train"), 3, communicator=communicator, arguments={"directory": str(tmp_path), "num_steps": 0}
    )
    scale = float(np.float32(1))
    expected = [3, 1 / 3, [[3.0, 3.0]] * 3, scale, {"rate": 0.1 / 3}]
    assert again == [{"restored": True, "seen": expected}] * 3


@pytest.mark.parametrize(
    ("what", "words"), [("commit", "the state['settings']['array'] is an array of object"), ("restore", "damaged")]
)
def test_an_error_of_rank_0_is_raised_on_all(tmp_path: Path, what: str, words: str) -> None:
    if what == "restore":
        (tmp_path / "commit-00000001").mkdir()
    messages = run_ranks((CHECKS, "fail"), 2, arguments={"directory": str(tmp_path), "what": what})
    assert words in messages[0]
    assert messages[1] == messages[0]


SCRIPT = """
import os, signal, sys
import numpy as np
import ringlet.elastic

ringlet.init()
state = ringlet.elastic.State(sys.argv[1], step=0, total=np.zeros(4))
state.restore()
while state.step < 20:
    state.step += 1
    state.total += ringlet.allreduce(np.full(4, state.step / 7), op="sum")
    if state.step == int(sys.argv[2]) and ringlet.rank() == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    state.commit()
if ringlet.rank() == 0:
    print(state.total.tobytes().hex())
"""


def run_script(folder: Path, num_ranks: int, kill_step: int, kill_rank: int) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(ringlet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    words = ["run", "-n", num_ranks, "--launcher", "local", script, folder / "state", kill_step, kill_rank]
    command = [sys.executable, "-m", "ringlet", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("kill_rank", [0, 1])
def test_a_killed_job_ends_with_the_bits_of_an_undisturbed_one(tmp_path: Path, kill_rank: int) -> None:
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    calm.mkdir()
    disturbed.mkdir()
    expected = run_script(calm, 2, -1, 0)
    killed = run_script(disturbed, 2, 13, kill_rank)
    assert killed.returncode == 3
    assert f"killed by signal {int(signal.SIGKILL)}" in killed.stderr
    assert len(commits_in(disturbed / "state")) == 2
    resumed = run_script(disturbed, 2, -1, 0)
    assert (resumed.returncode, resumed.stdout) == (0, expected.stdout)
    assert expected.stdout

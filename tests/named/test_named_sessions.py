"""Sessions in a user's script: how they begin, and how they end when ranks leave, die, are stopped or never answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import job_output, run_job

SCRIPT = Path(__file__).with_name("named_script.py")


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """``play(scene, num_ranks)``: what every rank left, None for those that left nothing."""

    def run(scene: str, num_ranks: int, communicator: str = "node", **environment: str) -> list[Any]:
        program = [sys.executable, str(SCRIPT), str(tmp_path), scene]
        run_job(program, num_ranks, communicator, tmp_path, 90, environment)
        paths = [tmp_path / f"scene-{rank}.json" for rank in range(num_ranks)]
        found = [json.loads(path.read_text()) if path.exists() else None for path in paths]
        assert any(result is not None for result in found), job_output(tmp_path)
        return found

    return run


@pytest.mark.parametrize(("communicator", "num_ranks"), [("single", 1), ("node", 3), ("mpi", 2)])
def test_a_session_begins_and_ends_and_begins_again(play: Any, communicator: str, num_ranks: int) -> None:
    everything = [float(num_ranks * (num_ranks + 1) // 2)]
    for rank, result in enumerate(play("begins_and_ends", num_ranks, communicator)):
        for text in result["before"][:4]:
            assert text.startswith("NotInitializedError: ringlet has not been initialised")
        assert result["before"][4].startswith(
            "ArgumentsError: ProcessSet(process_set_id=None, ranks=all) is not in use"
        )
        assert result["before"][5].startswith("NotInitializedError")
        assert result["first"] == [True, rank, num_ranks, num_ranks, everything]
        assert result["plain"] == num_ranks
        assert result["between"][:2] == [False, False]
        assert result["between"][2].startswith("NotInitializedError")
        assert result["again"] == everything


def test_others_learn_that_a_rank_has_left(play: Any) -> None:
    _, *others = play("one_leaves_while_others_wait", 3)
    for waited, later, set_later in others:
        assert waited == (
            "CollectiveError: allreduce 'unfinished' did not take place: the process set of ranks [0, 1, 2] was shut "
            "down by rank 0"
        )
        assert "was shut down by rank 0" in later
        assert "was shut down by rank 0" in set_later


def test_all_may_begin_again_after_one_has_left(play: Any) -> None:
    assert play("all_begin_again_after_one_has_left", 2) == [[3.0], [3.0]]


def test_others_learn_that_a_rank_has_died(play: Any) -> None:
    first, dead, last = play("one_dies", 3)
    assert dead is None
    for error, later in (first, last):
        assert error.startswith("LostRankError: allreduce 'without rank 1' did not take place: rank")
        assert later.startswith("LostRankError")
    assert any("has ended while rank" in error for error, _ in (first, last))


def test_a_process_may_end_with_unfinished_requests(play: Any) -> None:
    _, other = play("one_ends_with_unfinished_requests", 2)
    assert "allreduce 'nobody answers' did not take place" in other
    assert "was shut down by rank 0" in other


def test_an_exception_while_waiting_ends_the_session_on_all_ranks(play: Any) -> None:
    (interrupted, later), [other] = play("one_is_interrupted", 2)
    assert interrupted == "ArithmeticError: enough"
    assert "a round of rank 0 failed: ArithmeticError: enough" in later
    assert other.startswith(("LostRankError", "BrokenCollectivesError"))


def test_a_forked_process_cannot_take_the_place_of_its_rank(play: Any) -> None:
    for rank, (child, own) in enumerate(play("a_forked_process_is_refused", 2)):
        assert child.startswith("CollectiveError: allreduce 'child' was called in process")
        assert f"this process was forked from rank {rank} " in child
        assert own == [3.0]


def test_some_ranks_form_a_world_of_their_own(play: Any) -> None:
    results = play("some_ranks_form_a_world", 4)
    assert [found for found, _, _ in results[:3]] == [[0, 2, [4.0], [0, 1]], [0, 1, [2.0], [0]], [1, 2, [4.0], [0, 1]]]
    initialized, group, rank = results[3][0]
    assert not initialized
    assert "takes no part: it is not among the ranks [0, 2]" in group
    assert rank.startswith("NotInitializedError")
    assert [[after, repeated] for _, after, repeated in results] == [[[10.0], "no error"]] * 4


def test_lists_of_ranks_that_do_not_fit_raise_everywhere(play: Any) -> None:
    for wrong, beyond, kind, after in play("lists_that_do_not_fit", 2):
        assert "init(comm=[0, 1]) was called, but rank [1] called with other ranks" in wrong
        assert "rank [7] called with other ranks or does not exist" in beyond
        assert kind.startswith("ArgumentsError: comm='all': expected None, a list of ranks or an mpi4py communicator")
        assert after == [3.0]


def test_an_mpi4py_communicator_may_be_the_world(play: Any) -> None:
    first, second, third = play("an_mpi_communicator_is_the_world", 3, "mpi")
    assert [found for found, _ in (first, second, third)] == [[1, 2, [2.0]], [0, 1, [1.0]], [0, 2, [2.0]]]
    assert first[1] == second[1] == third[1] == [6.0]


def test_requests_that_a_rank_never_submits_are_reported_and_fail(play: Any) -> None:
    patience = {"RINGLET_STALL_WARNING_SECONDS": "0.2", "RINGLET_STALL_ERROR_SECONDS": "0.6"}
    results = play("requests_that_nobody_answers_are_reported", 3, **patience)
    assert [result["after"] for result in results] == [[6.0]] * 3
    for result in results[:2]:
        assert result["error"] == (
            "CollectiveError: allreduce 'step.7' did not take place: rank 2 did not submit it within 0.6 s, "
            "rank 0, 1 did"
        )
    assert results[0]["said"].count("ringlet: warning: allreduce 'step.7' has waited 0.") == 1
    assert "for rank 2; it was submitted by rank 0, 1. Every rank of [0, 1, 2] must submit it" in results[0]["said"]
    assert [result["said"] for result in results[1:]] == ["", ""]


def test_a_rank_that_does_not_answer_at_all_is_reported(play: Any) -> None:
    (value, said), late = play("a_silent_rank_is_reported", 2, RINGLET_STALL_WARNING_SECONDS="0.2")
    assert value == late == [2.0]
    assert "ringlet: warning: rank 0 waits for 'late', but some rank has been silent for 0." in said


def test_a_process_may_end_while_another_is_stopped(play: Any) -> None:
    threads, stopped = play("one_ends_while_another_is_stopped", 2)
    assert threads == []
    assert stopped.startswith("LostRankError: allreduce 'nobody is left' did not take place")


def test_patience_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringlet.errors import UsageError
    from ringlet.named.monitoring import Patience, patience_from_environment

    assert patience_from_environment() == Patience(60.0, 600.0)
    monkeypatch.setenv("RINGLET_STALL_ERROR_SECONDS", "0")
    assert patience_from_environment() == Patience(60.0, 0.0)
    for text in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv("RINGLET_STALL_WARNING_SECONDS", text)
        with pytest.raises(UsageError, match="RINGLET_STALL_WARNING_SECONDS="):
            patience_from_environment()

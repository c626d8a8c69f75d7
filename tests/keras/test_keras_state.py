"""Saving, loading, resuming, and states that survive failures."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])


def test_what_is_saved_is_a_plain_model(checked, backend):
    results = checked(backend, "saving_and_loading")[0]
    assert all(result["plain"] == ["Adam", True] for result in results.values())


def test_one_rank_loads_and_all_go_on(checked, backend):
    results = checked(backend, "saving_and_loading")
    assert set(results[0]) == ({"keras", "h5"} if backend == "torch" else {"keras"})
    for suffix in results[0]:
        first, second = (result[suffix] for result in results)
        assert first["is_distributed"]
        assert first["iterations"] == second["iterations"] == 8
        assert first["resumed"] == second["resumed"]
        assert first["went_on"]


def test_saving_without_the_optimizer(checked, backend):
    result = checked(backend, "saving_without_optimizer")[0]
    assert result["keras"] == [True, True, True]
    assert result["h5"] == [True, True, True]


def test_an_error_while_saving_reaches_all_ranks(checked, backend):
    first, second = checked(backend, "saving_without_optimizer")
    assert "rank 0 could not save the model to" in first["error"]
    assert second["error"] == first["error"]


def test_global_variables_are_broadcast(checked, backend):
    first, second = checked(backend, "global_variables")
    assert first["before"] != second["before"]
    assert first["after"] == second["after"] == second["before"]
    assert first["optimizers"] == second["optimizers"]


def test_an_elastic_state_comes_back_from_memory_and_from_disk(checked, backend):
    first, second = checked(backend, "elastic_state")
    assert not first["loaded_first"]
    assert first["synced"] == second["synced"]
    assert first["synced"][1] == 0
    assert first["values"] == second["values"] == [2, 0]
    assert first["committed"] == second["committed"]
    assert first["restored"] == [first["committed"], 2]
    assert second["loaded"] == first["loaded"] == [True, first["committed"], 2, "a"]


def test_training_goes_on_after_a_collective_failed(checked, backend):
    first, second = checked(backend, "elastic_run")
    assert (first["epoch"], first["steps"]) == (3, 12)
    assert first["resets"] == [1]  # the second epoch failed, the first was committed
    assert first["digest"] == second["digest"]


def test_a_commit_that_made_progress_begins_the_count_of_failures_again(checked, backend):
    first = checked(backend, "elastic_run")[0]
    assert first["progress"] == list(range(7))
    assert first["stuck"] == [1, 1, 1, 1, "never gets on"]


def test_wrong_arguments_are_not_tried_again(checked, backend):
    first = checked(backend, "elastic_run")[0]
    assert first["tries"] == 1
    assert "do not fit together" in first["message"]

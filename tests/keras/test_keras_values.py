"""Collectives on values, their errors, and the questions about ranks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])


def test_results_are_of_the_kind_that_was_given(checked, backend):
    for result in checked(backend, "kinds_of_values"):
        assert result["number"] == [1.5, "float"]
        assert result["whole"] == 3
        assert result["list"] == [1.0, 1.0]
        assert result["values"] == {
            "array": [[1.5, 1.5], [1.5, 1.5]],
            "tensor": [[1.5, 1.5], [1.5, 1.5]],
            "variable": [[1.5, 1.5], [1.5, 1.5]],
            "half": [[1.5, 1.5], [1.5, 1.5]],
            "scalar": 1.5,
        }
        assert all(result["are_tensors"])
        assert all(result["are_arrays"])
        assert result["half_dtype"] == "bfloat16"


def test_collectives_on_two_ranks(checked, backend):
    first, second = checked(backend, "collectives")
    gathered = [[0.0, 1.0], [10.0, 11.0], [12.0, 13.0]]
    common = {
        "allgather": gathered,
        "allgather_tensor": gathered,
        "allgather_number": [0, 1],
        "broadcast": 6,
        "broadcast_tensor": [[1.0, 1.0]],
        "grouped": [[1.0, 1.0], 3.0],
        "max": 1,
        "scaled": 10.0,
        "old": 2.0,
        "compressed": 1.0,
        "object": {"rank": 1, "names": ["a", "é"]},
        "objects": [[0, None, 0.5], [1, None, 0.5]],
    }
    assert {name: first[name] for name in common} == common
    assert {name: second[name] for name in common} == common
    assert (first["reducescatter"], second["reducescatter"]) == ([[0.0, 3.0, 6.0]], [[9.0, 12.0, 15.0]])
    assert (first["reducescatter_average"], second["reducescatter_average"]) == ([0.0, 1.0], [2.0])
    assert (first["alltoall"], second["alltoall"]) == ([0.0, 10.0], [1.0, 11.0])
    assert first["alltoall_splits"] == [[0.0, 1.0, 10.0, 11.0], [2, 2]]
    assert second["alltoall_splits"] == [[2.0, 12.0], [1, 1]]


def test_values_inside_compiled_functions(checked, backend):
    for result in checked(backend, "inside_a_graph"):
        assert result["values"] == [[0.0, 6.0, 12.0], [0.0, 2.0, 4.0]]
        assert backend == "torch" or "expected allreduce or broadcast there" in result["refused"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("both", "were given: expected op alone"),
        ("shapes", "rank 1 submitted allreduce of float64 of shape (3,)"),
        ("dtypes", "rank 0 submitted allreduce of float32"),
        ("min", "expected Average, Sum or Adasum"),
        ("predivide", "expected a positive factor, with Average"),
        ("twice", "is distributed already"),
        ("passes", "backward_passes_per_step=3 cannot be set"),
        ("uncompiled", "call model.compile(…) before distribute(model)"),
        ("lengths", "arrays of lengths [3, 4] cannot be cut alike"),
        ("rule", "unknown rule 'cubic'"),
        ("unbuilt", "no distributed optimizer has variables yet"),
    ],
)
def test_wrong_arguments_are_value_errors_on_all_ranks(checked, backend, name, words):
    for result in checked(backend, "errors"):
        assert result["messages"][name].startswith("True ")
        assert words in result["messages"][name]


def test_operations_go_on_after_errors(checked, backend):
    assert [result["next"] for result in checked(backend, "errors")] == [2.0, 2.0]


def test_ranks_know_who_they_are(checked, backend):
    first, second = checked(backend, "questions")
    assert (first["ranks"], second["ranks"]) == ([0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1])
    assert first["is_homogeneous"]
    assert first["built"] == [0, False, False, False, False]
    assert first["enabled"] == [False, False, True]


def test_shards_by_start_and_end(checked, backend):
    first, second = checked(backend, "questions")
    assert first["shards"] == [[0, 1], [2, 3], [4]]
    assert (first["own_bounds"], second["own_bounds"]) == ([0, 3], [3, 5])
    assert first["rates"] == pytest.approx([0.2, 0.2])

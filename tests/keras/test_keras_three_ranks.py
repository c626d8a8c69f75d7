"""What shows with three ranks only."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.xdist_group("keras-three-ranks")  # one process starts the ranks for all tests


def test_three_ranks_with_uneven_data_of_unknown_length(checked):
    results = checked("torch", "three_uneven_shards", num_ranks=3)
    assert len({result["digest"] for result in results}) == 1
    assert [result["iterations"] for result in results] == [3, 3, 3]


def test_a_process_set_trains_together_and_leaves_others_alone(checked):
    first, second, third = checked("torch", "process_set", num_ranks=3)
    assert [first["included"], second["included"], third["included"]] == [False, True, True]
    assert second["digest"] == third["digest"] != first["digest"]
    assert (first["total"], second["total"], third["total"]) == (None, 3.0, 3.0)
    assert first["everybody"] == 3.0
    assert first["files"] == ["of-0.keras", "of-1.keras"]


def test_collectives_on_three_ranks(checked):
    results = checked("torch", "collectives", num_ranks=3)
    assert results[0]["allgather_number"] == [0, 1, 2]
    assert [result["alltoall"] for result in results] == [[0.0, 10.0, 20.0], [1.0, 11.0, 21.0], [2.0, 12.0, 22.0]]
    assert [result["reducescatter_average"] for result in results] == [[0.0, 1.0], [2.0], [3.0]]

"""A collective from outside: one entry of ``KINDS`` describes it, and ranks compare, refuse and carry it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threads import Crew

from ringlet.comm.contract import Communicator
from ringlet.named import ArgumentsError, CollectiveError, NamedCollectives, Reduction, Submission
from ringlet.named.kinds import KINDS, Kind
from ringlet.named.reductions import finish, recipe, scaled


def run_reduce(communicator: Communicator, submission: Submission, root: int) -> list[Any]:
    """The combined values on the root, the own ones elsewhere."""
    results = []
    for array in submission.inputs:
        how = recipe(array.dtype, submission.op, submission.prescale, submission.postscale, communicator.size)
        combined = communicator.allreduce(scaled(array, how.before), how.op)
        finish(combined, how)
        results.append(combined if communicator.rank == root else array)
    return results


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Crew, list[NamedCollectives]]]:
    monkeypatch.setitem(KINDS, "reduce", Kind(run_reduce, reduces=True, has_root=True))
    made = Crew(2)
    groups = [NamedCollectives(communicator, range(2)) for communicator in made.communicators]
    yield made, groups
    for group in groups:
        group.leave()
    for group in groups:
        group.close()
    made.close()


def on_ranks(crew, function):
    made, groups = crew
    return made.run(lambda communicator: function(groups[communicator.rank]))


def test_it_takes_place_when_all_ranks_have_submitted_it(crew):
    def run(group):
        own = np.array([group.rank + 1.0])
        first = group.submit(Submission("reduce", "b", (own,), op=Reduction.SUM, root=1))
        second = group.submit(Submission("reduce", "a", (own,), op=Reduction.MAX, prescale=2.0))
        return [float(handle.wait()[0][0]) for handle in (first, second)]

    assert on_ranks(crew, run) == [[1.0, 4.0], [3.0, 2.0]]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"root": 0}, {"root": 1}, "op average, root 0; rank 1 submitted"),
        ({"op": Reduction.SUM}, {"op": Reduction.MIN}, "op sum, root 0; rank 1 submitted"),
        ({}, {"root": 7}, "root 7 is not in the process set"),
        ({}, {"outputs": (np.zeros(1),)}, "only for allreduce and broadcast"),
    ],
)
def test_ranks_that_disagree_get_the_same_error(crew, first, second, words):
    def run(group):
        with pytest.raises(ArgumentsError) as caught:
            group.run(Submission("reduce", "wrong", (np.ones(1),), **(second if group.rank else first)))
        return str(caught.value)

    messages = on_ranks(crew, run)
    assert words in messages[0]
    assert messages[0] == messages[1]


def test_it_is_refused_while_a_rank_has_joined(crew):
    def run(group):
        if group.rank == 0:
            return int(group.run(Submission("join", "join"))[0])
        with pytest.raises(CollectiveError, match="takes part in allreduces and barriers only: expected no reduce"):
            group.run(Submission("reduce", "late", (np.ones(1),)))
        return int(group.run(Submission("join", "join"))[0])

    assert on_ranks(crew, run) == [1, 1]

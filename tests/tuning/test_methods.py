"""Methods: which trials go on, whatever the order of results; on objectives that are known."""

from __future__ import annotations

import math
import random

import pytest

from ringlet.tuning.methods.base import METHODS, Job, Question
from ringlet.tuning.space import parse_space

SPACE = parse_space({"learning_rate": "log(1e-4,1)", "optimizer.name": "sgd,adam"})


def question(trials: int = 9, epochs: int = 9, parallel: int = 1) -> Question:
    return Question(SPACE, trials, epochs, 0, parallel)


def merit(job: Job) -> float | None:
    """Good near 0.01, better with more epochs; diverged above 0.3."""
    rate = job.values["learning_rate"]
    return None if rate > 0.3 else abs(math.log10(rate) + 2) + 1 / job.epochs


def searched(method: str, asked: Question, shuffle: random.Random | None = None) -> dict[tuple[int, int], float | None]:
    """All results, each obtained when it was first asked for; perhaps one of several at a time, in any order."""
    found: dict[tuple[int, int], float | None] = {}
    chosen = METHODS.parse(method)
    while jobs := chosen.next_jobs(asked, found):
        for job in jobs if shuffle is None else shuffle.sample(jobs, k=shuffle.randint(1, len(jobs))):
            assert job.key not in found
            found[job.key] = merit(job)
    return found


def test_random_search_trains_every_trial_to_the_end_once() -> None:
    assert sorted(searched("random", question())) == [(trial, 9) for trial in range(1, 10)]
    assert METHODS.parse("random").num_epochs(question()) == 81


@pytest.mark.parametrize(
    ("method", "trials", "epochs", "stages"),
    [
        ("halving", 9, 9, [(9, 1), (3, 3), (1, 9)]),
        ("halving", 20, 50, [(20, 2), (7, 6), (3, 17), (1, 50)]),
        ("halving:2", 5, 8, [(5, 1), (3, 2), (2, 4), (1, 8)]),
        ("halving:3,min_epochs=3", 9, 9, [(9, 3), (3, 9)]),
        ("halving", 9, 1, [(9, 1)]),
        ("halving", 1, 9, [(1, 9)]),
    ],
)
def test_stages_of_halving(method, trials, epochs, stages) -> None:
    chosen = METHODS.parse(method)
    assert chosen.stages(question(trials, epochs)) == stages
    spent = sum(count * (last - before) for (count, last), (_, before) in zip(stages, [(0, 0), *stages], strict=False))
    assert chosen.num_epochs(question(trials, epochs)) == spent


def test_the_best_third_goes_on_and_what_has_diverged_never_does() -> None:
    asked = question(27, 9)
    found = searched("halving", asked)
    first = {trial: own for (trial, epochs), own in found.items() if epochs == 1}
    second = sorted(trial for trial, epochs in found if epochs == 3)
    good = sorted((own, trial) for trial, own in first.items() if own is not None)
    assert len(first) == 27
    assert any(own is None for own in first.values())
    assert second == sorted(trial for _, trial in good[:9])
    best = min((own, trial) for (trial, epochs), own in found.items() if epochs == 9)[1]
    assert best == good[0][1]


def test_the_order_of_results_decides_nothing() -> None:
    asked = question(12, 9)
    expected = searched("halving", asked)
    for seed in range(5):
        assert searched("halving", asked, random.Random(seed)) == expected


def test_a_search_in_which_all_diverge_ends() -> None:
    chosen, asked = METHODS.parse("halving"), question()
    found = {job.key: None for job in chosen.next_jobs(asked, {})}
    assert chosen.next_jobs(asked, found) == []


def test_optuna_learns_from_results_and_proposes_the_same_again() -> None:
    asked = question(16, 1, parallel=2)
    found = searched("optuna,startup=6", asked)
    assert sorted(found) == [(trial, 1) for trial in range(1, 17)]
    assert searched("optuna,startup=6", asked, random.Random(1)) == found
    early = [own for (trial, _), own in found.items() if trial <= 6 and own is not None]
    late = [own for (trial, _), own in found.items() if trial > 12 and own is not None]
    assert min(found.values(), key=lambda own: math.inf if own is None else own) < 1.5
    assert sum(late) / len(late) < sum(early) / len(early)

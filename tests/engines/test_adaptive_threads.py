"""The number of threads in a step, on machines that are quiet, busy, or become so."""

from __future__ import annotations

import pytest

from ringlet.engines import threads
from ringlet.engines.threads import AdaptiveThreads


class Machine:
    """Kernels and a clock; a step takes so many seconds, by its number of threads."""

    def __init__(self, number: int = 4, **seconds: float):
        self.threads, self.now, self.seconds = number, 0.0, seconds
        self.history: list[int] = []

    def num_threads(self):
        return self.threads

    def set_num_threads(self, number):
        self.threads = number

    def clock(self):
        return self.now

    def train(self, step: AdaptiveThreads, seconds: float):
        end = self.now + seconds
        while self.now < end:
            with step:
                self.history.append(self.threads)
                self.now += self.seconds["one" if self.threads == 1 else "all"]
            assert self.threads == 4


def shares(machine):
    """How much of the last half of its steps had one thread."""
    late = machine.history[len(machine.history) // 2 :]
    return late.count(1) / len(late)


def test_a_quiet_machine_uses_all_threads_and_seldom_tries_one():
    machine = Machine(one=0.002, all=0.001)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 60)
    assert 0 < machine.history.count(1) / len(machine.history) < 0.02


def test_threads_that_bring_nothing_are_given_up():
    machine = Machine(one=0.00098, all=0.001)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 60)
    assert shares(machine) > 0.98


def test_a_busy_machine_uses_one_thread():
    machine = Machine(one=0.006, all=0.05)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 60)
    assert shares(machine) > 0.98


def test_a_machine_that_becomes_busy_is_noticed_at_once_and_one_that_becomes_quiet_later():
    machine = Machine(one=0.002, all=0.001)
    step = AdaptiveThreads(machine, clock=machine.clock)
    machine.train(step, 60)
    machine.history.clear()
    machine.seconds = {"one": 0.006, "all": 0.05}
    machine.train(step, 2)
    assert shares(machine) > 0.9
    machine.seconds = {"one": 0.002, "all": 0.001}
    machine.train(step, threads.LONGEST_PAUSE_SECONDS)
    machine.history.clear()
    machine.train(step, 10)
    assert shares(machine) < 0.1


def test_a_busy_machine_loses_no_more_than_a_few_percent_to_trials():
    machine = Machine(one=0.006, all=0.05)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 60)
    assert len(machine.history) > 0.97 * 60 / 0.006


def test_the_first_steps_have_one_thread_and_a_trial_of_all_ends_with_its_first_long_step():
    machine = Machine(one=0.006, all=0.4)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 1)
    assert machine.history[:8] == [4] + [1] * 5 + [4, 1]


def test_long_steps_are_tried_too_but_few_of_them():
    machine = Machine(one=1.0, all=0.6)
    machine.train(AdaptiveThreads(machine, clock=machine.clock), 120)
    assert 1 <= machine.history.count(1) <= 4


@pytest.mark.parametrize("kernels", [None, Machine(1)], ids=["without kernels", "with one thread"])
def test_nothing_happens(kernels):
    with AdaptiveThreads(kernels):
        assert kernels is None or kernels.threads == 1

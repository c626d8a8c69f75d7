"""The number of threads in a step, on machines that are quiet, busy, or become so."""

from __future__ import annotations

import pytest

from ringlet.training import devices
from ringlet.training.devices import StepThreads


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

    def train(self, step: StepThreads, seconds: float):
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
    machine.train(StepThreads(machine, clock=machine.clock), 60)
    assert 0 < machine.history.count(1) / len(machine.history) < 0.02


def test_a_little_faster_is_not_enough_to_give_threads_up():
    machine = Machine(one=0.0008, all=0.001)
    machine.train(StepThreads(machine, clock=machine.clock), 60)
    assert machine.history.count(1) / len(machine.history) < 0.02


def test_a_busy_machine_uses_one_thread():
    machine = Machine(one=0.006, all=0.05)
    machine.train(StepThreads(machine, clock=machine.clock), 60)
    assert shares(machine) > 0.98


def test_a_machine_that_becomes_busy_is_noticed_at_once_and_one_that_becomes_quiet_later():
    machine = Machine(one=0.002, all=0.001)
    step = StepThreads(machine, clock=machine.clock)
    machine.train(step, 60)
    machine.history.clear()
    machine.seconds = {"one": 0.006, "all": 0.05}
    machine.train(step, 2)
    assert shares(machine) > 0.9
    machine.seconds = {"one": 0.002, "all": 0.001}
    machine.train(step, devices.LONGEST_PAUSE_SECONDS)
    machine.history.clear()
    machine.train(step, 10)
    assert shares(machine) < 0.1


def test_other_work_has_the_threads_of_a_step():
    machine = Machine(one=0.006, all=0.05)
    step = StepThreads(machine, clock=machine.clock)
    machine.train(step, 5)
    with step.as_in_steps():
        assert machine.threads == 1
    assert machine.threads == 4
    with pytest.raises(RuntimeError, match="in between"), step.as_in_steps():
        raise RuntimeError("in between")
    assert machine.threads == 4


def test_long_steps_are_left_alone():
    machine = Machine(one=0.2, all=1.0)
    machine.train(StepThreads(machine, clock=machine.clock), 60)
    assert set(machine.history) == {4}


@pytest.mark.parametrize("kernels", [None, Machine(1)], ids=["without kernels", "with one thread"])
def test_nothing_happens(kernels):
    with StepThreads(kernels), StepThreads(kernels).as_in_steps():
        assert kernels is None or kernels.threads == 1

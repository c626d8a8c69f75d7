"""States that survive: restored after failures in memory, and from disk in another life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hvd_common import (
    expect_close,
    expect_error,
    expect_same_everywhere,
    loss_of,
    make_batches,
    make_net,
    own,
    sgd,
    train_alone,
)
from torch.utils.data import TensorDataset

import ringlet.torch as hvd
from ringlet.elastic.loop import RESET_LIMIT
from ringlet.errors import CheckpointError
from ringlet.torch import elastic


def check_object_state() -> None:
    state = elastic.ObjectState(epoch=hvd.rank(), history=[hvd.rank()])
    state.sync()
    assert (state.epoch, state.history) == (0, [0])
    state.epoch, state.history = 5, [*state.history, 1]
    state.commit()
    state.history.append(2)
    state.epoch = 6
    state.restore()
    assert (state.epoch, state.history) == (5, [0, 1])
    expect_error(lambda: elastic.ObjectState(commit=1), "'commit' cannot be a value of the state")


def _state(seed: int, **options: Any) -> tuple[Any, Any]:
    model = make_net(seed=seed)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    sampler = elastic.ElasticSampler(TensorDataset(torch.arange(24)), shuffle=True)
    state = elastic.TorchState(model, optimizer, scheduler=scheduler, sampler=sampler, step=0, **options)
    return state, model


def _train(state: Any, batches: list[Any], until: int) -> None:
    while state.step < until:
        x, y = batches[state.step]
        state.optimizer.zero_grad()
        loss_of(state.model, own(x), own(y)).backward()
        state.optimizer.step()
        state.scheduler.step()
        state.step += 1


def _train_alone(batches: list[Any]) -> Any:
    def make(parameters: Any) -> Any:
        optimizer = sgd(parameters)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        optimizer.register_step_post_hook(lambda *_: scheduler.step())
        return optimizer

    return train_alone(make_net(seed=0), make, batches)


def check_a_failure_restores_the_last_commit() -> None:
    """Everything is taken back: weights, momentum, schedule, values. The end is that of an undisturbed run."""
    batches = make_batches(6)
    state, model = _state(seed=hvd.rank())  # rank 0's counts
    resets: list[int] = []
    state.register_reset_callbacks([lambda: resets.append(state.step)])
    failures = [hvd.HorovodInternalError("a link broke"), hvd.HorovodInternalError("again")]

    @elastic.run
    def train(state: Any, word: str) -> str:
        _train(state, batches, 2)
        if state.step == 2:
            state.commit()
        _train(state, batches, 4)
        if failures:
            raise failures.pop()
        _train(state, batches, 6)
        return word

    assert train(state, "done") == "done"
    assert resets == [2, 2]
    expect_same_everywhere(model.parameters())
    expect_close(model, _train_alone(batches))


def check_failures_without_end_and_mistakes_are_raised() -> None:
    calls = []

    @elastic.run
    def hopeless(state: Any) -> None:
        calls.append(1)
        raise hvd.HorovodInternalError("never works")

    expect_error(lambda: hopeless(elastic.ObjectState(step=0)), "never works", RuntimeError)
    assert len(calls) == RESET_LIMIT + 1
    calls.clear()

    @elastic.run
    def mistaken(state: Any) -> None:
        calls.append(1)
        hvd.allreduce(torch.ones(2 + hvd.rank() % 2), name="mistake")

    expect_error(lambda: mistaken(elastic.ObjectState(step=0)), "do not fit together")
    assert len(calls) == 1


def check_a_commit_that_made_progress_begins_the_count_of_failures_again() -> None:
    steps: list[int] = []

    @elastic.run
    def train(state: Any) -> None:
        steps.append(state.step)
        if state.step < 2 * RESET_LIMIT:
            state.step += 1
            state.commit()
            raise hvd.HorovodInternalError("works for a step")

    train(elastic.ObjectState(step=0))
    assert steps == list(range(2 * RESET_LIMIT + 1))
    calls = []

    @elastic.run
    def stuck(state: Any) -> None:
        calls.append(1)
        state.commit()
        raise hvd.HorovodInternalError("never gets on")

    expect_error(lambda: stuck(elastic.TorchState(make_net(seed=0), step=0)), "never gets on", RuntimeError)
    assert len(calls) == RESET_LIMIT + 1


def check_a_change_of_hosts_keeps_the_state() -> None:
    """Told to one rank, agreed on by all at the next commit."""
    state = elastic.ObjectState(step=0)
    interrupted: list[int] = []
    state.register_reset_callbacks([lambda: interrupted.append(state.step)])

    @elastic.run
    def train(state: Any) -> int:
        while state.step < 4:
            state.step += 1
            if state.step == 2 and hvd.rank() == hvd.size() - 1:
                state.on_hosts_updated(0.0)
            state.commit()
        return int(state.step)

    assert train(state) == 4
    assert interrupted == [2]


def check_commits_on_disk(folder: Path) -> None:
    """A second state, as after a restart, goes on where the first one ended."""
    batches = make_batches(4)
    first, _ = _state(seed=0, directory=folder / "commits", best=float("inf"))

    @elastic.run
    def train(state: Any, until: int) -> None:
        _train(state, batches, until)
        state.sampler.record_batch(0, 3)
        state.best = 0.5
        state.commit()

    train(first, 2)
    num_read = len(first.sampler.processed_indices)
    second, model = _state(seed=77, directory=folder / "commits", best=float("inf"))
    seen = {}

    @elastic.run
    def go_on(state: Any) -> None:
        seen.update(step=state.step, best=state.best, read=len(state.sampler.processed_indices))
        _train(state, batches, 4)

    go_on(second)
    assert seen == {"step": 2, "best": 0.5, "read": num_read * hvd.size()}
    assert len(second.sampler) == -(-(24 - 3 * hvd.size()) // hvd.size())
    expect_same_everywhere(model.parameters())
    expect_close(model, _train_alone(batches))
    third = elastic.ObjectState(directory=folder / "commits", other=1)
    expect_error(third.load, "give the same names, or another directory", CheckpointError)


def check_sampler_shares_out_what_is_left() -> None:
    data = TensorDataset(torch.arange(20))
    sampler = elastic.ElasticSampler(data, shuffle=True, seed=1)
    first = list(sampler)
    assert len(first) == len(sampler) == -(-20 // hvd.size())
    assert sorted(set(hvd.allgather(torch.tensor(first)).tolist())) == list(range(20))
    state = elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    sampler.record_batch(1, 2)
    assert sampler.processed_num == 4 * hvd.size()
    state.commit()
    read = set(hvd.allgather(torch.tensor(first[:4])).tolist())
    assert state.sampler is sampler
    state.on_reset()
    state.sync()
    assert sampler.processed_indices == read
    assert sampler.processed_num == len(read)
    left = hvd.allgather(torch.tensor(list(sampler))).tolist()
    assert set(left) == set(range(20)) - read
    sampler.set_epoch(1)
    assert sorted(set(hvd.allgather(torch.tensor(list(sampler))).tolist())) == list(range(20))
    sampler.record_indices(range(20))
    sampler.reset()
    assert list(sampler) == []


def check_handlers_of_users() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    class Handler(elastic.StateHandler):
        def sync(self) -> None:
            self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict()))
            self.save()

    known = elastic.get_handler_registry()
    elastic.set_handler_registry([(Counter, Handler), *known])
    counter = Counter()
    counter.count = hvd.rank()
    state = elastic.TorchState(counter=counter)
    elastic.set_handler_registry(known)
    state.sync()
    assert counter.count == 0
    state.commit()
    counter.count = 4
    state.restore()
    assert counter.count == 0
    state.counter = Counter()
    assert state.model is None

"""What one rank has for all: parameters, optimizers, objects, files."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hvd_common import (
    expect_close,
    expect_error,
    expect_same_everywhere,
    make_batches,
    make_net,
    sgd,
    train_alone,
    train_together,
)

import ringlet.torch as hvd
from ringlet.errors import RingletError


def check_parameters() -> None:
    for root in range(hvd.size()):
        expected = make_net(seed=root)
        for give in (
            lambda model: model.state_dict(),
            lambda model: list(model.named_parameters()),
            lambda model: list(model.parameters()),
            lambda model: model.named_parameters(),
        ):
            model = make_net(seed=hvd.rank(), channels_last=hvd.rank() == 1)
            hvd.broadcast_parameters(give(model), root_rank=root)
            expect_close(model, expected, 0.0)
    statistics = torch.nn.BatchNorm1d(3)
    statistics(torch.full((2, 3), float(hvd.rank())))
    hvd.broadcast_parameters(statistics.state_dict(), hvd.size() - 1)
    assert torch.allclose(statistics.running_mean, torch.full((3,), 0.1 * (hvd.size() - 1)))
    expect_error(lambda: hvd.broadcast_parameters(3, 0), "parameters of type int")
    expect_error(lambda: hvd.broadcast_parameters({"a": "text"}, 0), "'a' among the parameters is of type str")
    hvd.broadcast_parameters({}, 0)


def check_shapes_of_parameters_must_agree() -> None:
    layer = torch.nn.Linear(2, 2 + hvd.rank() % 2)
    expect_error(lambda: hvd.broadcast_parameters(layer.state_dict(), 0), "do not fit together")


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "SGD dampening": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.5),
    "Adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),
    "Adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, 0.01, weight_decay=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, 0.01, weight_decay=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, 0.01, weight_decay=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, 0.01, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.1, momentum=0.5, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p, 0.01),
}


def check_optimizer_state_of_a_rank_that_has_trained() -> None:
    """One rank knows the state; all go on with it, with its options, as if they had trained themselves."""
    before, after = make_batches(2), make_batches(2, seed=9)
    root = hvd.size() - 1
    for name, make in OPTIMIZERS.items():
        model = make_net()
        expected = train_alone(model, make, before + after)
        plain = make(model.parameters())
        if hvd.rank() == root:
            for x, y in before:
                plain.zero_grad()
                torch.nn.functional.mse_loss(model(x), y).backward()
                plain.step()
        else:
            plain.param_groups[0]["lr"] = 123.0
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root)
        hvd.broadcast_optimizer_state(optimizer, root)
        assert optimizer.param_groups[0]["lr"] != 123.0, name
        optimizer.zero_grad()
        train_together(model, optimizer, after)
        expect_same_everywhere(model.parameters())
        expect_close(model, expected, 1e-3 if name in ("Adadelta", "Rprop") else 1e-4)


def check_an_empty_state_is_made_without_counting_as_a_step() -> None:
    batches = make_batches(3)
    for name, make in OPTIMIZERS.items():
        model = make_net()
        expected = train_alone(model, make, batches)
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        before = [parameter.detach().clone() for parameter in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True)), name
        made = bool(optimizer.state_dict()["state"])
        assert made == (name not in ("SGD", "SGD dampening", "ASGD", "NAdam", "Rprop")), name
        train_together(model, optimizer, batches)
        expect_close(model, expected, 1e-3 if name in ("Adadelta", "Rprop") else 1e-4)


def check_lbfgs_raises() -> None:
    optimizer = torch.optim.LBFGS(make_net().parameters())
    expect_error(lambda: hvd.broadcast_optimizer_state(optimizer, 0), "LBFGS cannot be broadcast")


def _object(rank: int) -> Any:
    return {
        "rank": rank,
        (1, "key"): [None, True, -(2**70), 0.1 + rank, float("inf"), "é", b"\x00\xff", 1 + 2j],
        "set": {1, 2, rank},
        "tensors": (torch.full((2, rank + 1), float(rank)), torch.tensor(rank, dtype=torch.bfloat16), torch.ones(0, 3)),
        "arrays": [np.arange(rank + 2, dtype=np.int16), np.float32(0.1)],
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "counter": collections.Counter({3: 2}),
        "dtype": torch.float16,
    }


def _expect_object(result: Any, rank: int) -> None:
    expected = _object(rank)
    assert list(result) == list(expected)
    for key in ("rank", (1, "key"), "set", "ordered", "counter", "dtype"):
        assert result[key] == expected[key]
        assert type(result[key]) is type(expected[key])
    for tensor, other in zip(result["tensors"], expected["tensors"], strict=True):
        assert tensor.dtype is other.dtype
        assert torch.equal(tensor, other)
    assert result["arrays"][0].dtype == np.int16
    assert result["arrays"][0].tolist() == expected["arrays"][0].tolist()
    assert result["arrays"][1] == np.float32(0.1)
    assert type(result["arrays"][1]) is np.float32


def check_objects() -> None:
    for root in range(hvd.size()):
        _expect_object(hvd.broadcast_object(_object(hvd.rank()), root, name="thing"), root)
        assert hvd.broadcast_object(None if hvd.rank() != root else "word", root) == "word"
    for rank, result in enumerate(hvd.allgather_object(_object(hvd.rank()))):
        _expect_object(result, rank)
    assert hvd.allgather_object([]) == [[]] * hvd.size()


def check_objects_that_cannot_travel() -> None:
    """An error on all ranks, also if only one has such an object; what comes next works."""
    expect_error(lambda: hvd.broadcast_object(object() if hvd.rank() == 0 else None, 0), "cannot travel between ranks")
    thing = object() if hvd.rank() == hvd.size() - 1 else 1
    expect_error(lambda: hvd.allgather_object(thing), f"rank {hvd.size() - 1} cannot let its object be gathered")
    assert hvd.broadcast_object(hvd.rank(), 0) == 0


def check_files(folder: Path) -> None:
    model, other = make_net(seed=hvd.rank()), make_net(seed=50 + hvd.rank())
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    torch.nn.functional.mse_loss(model(torch.ones(2, 2, 4, 4)), torch.ones(2, 3)).backward()
    optimizer.step()
    path = folder / "checkpoint.safetensors"
    hvd.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    assert path.exists()
    assert [file.name for file in folder.iterdir()] == [path.name]
    loaded = hvd.load(path)
    assert loaded["epoch"] == 3
    other.load_state_dict(loaded["model"])
    restored = torch.optim.Adam(other.parameters(), 1.0)
    restored.load_state_dict(loaded["optimizer"])
    assert restored.param_groups[0]["lr"] == 0.01
    assert restored.param_groups[0]["betas"] == (0.9, 0.999)
    expect_same_everywhere([*other.parameters(), *(state["exp_avg"] for state in restored.state.values())])
    if hvd.rank() == 0:
        expect_close(other, model, 0.0)
    hvd.save(hvd.rank(), path)  # replaces
    assert hvd.load(path) == 0


def check_files_that_cannot_be(folder: Path) -> None:
    missing, path = folder / "missing", folder / "damaged"
    assert "cannot read" in expect_error(lambda: hvd.load(missing), "missing", RingletError)
    if hvd.rank() == 0:
        path.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    hvd.barrier()
    expect_error(lambda: hvd.load(path), "is not a file that ringlet.torch.save wrote", RingletError)
    expect_error(lambda: hvd.save({"a": object()}, folder / "object"), "cannot travel", RingletError)
    expect_error(lambda: hvd.save(1, missing / "below"), "cannot write", RingletError)
    assert not (folder / "object").exists()


def check_optimizers_alike() -> None:
    """State of a momentum optimizer made on one rank only, and groups that do not fit."""
    model = make_net()
    optimizer = sgd(model.parameters() if hvd.rank() == 0 else list(model.parameters())[:2])
    call = lambda: hvd.broadcast_optimizer_state(optimizer, 0)  # noqa: E731
    if hvd.rank() == 0:
        call()
    else:
        expect_error(call, "they must be alike")


def check_optimizer_state_beside_parameters_that_are_not_trained() -> None:
    """Whole numbers have no gradients, and no step looks for them; the others have zeros, as Horovod leaves them."""
    counts = torch.nn.Parameter(torch.tensor([1, 3]), requires_grad=False)
    weights = torch.nn.Parameter(torch.full((4,), float(hvd.rank())))
    optimizer = torch.optim.SGD([counts, weights], 0.1 + hvd.rank(), momentum=0.9, weight_decay=0.1, nesterov=True)
    optimizer = hvd.DistributedOptimizer(optimizer, [("counts", counts), ("weights", weights)])
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert counts.grad is None
    assert torch.equal(weights.grad, torch.zeros(4))
    assert torch.equal(weights.detach(), torch.full((4,), float(hvd.rank())))
    assert optimizer.param_groups[0]["lr"] == 0.1

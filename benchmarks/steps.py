"""Whole training steps (forward, backward, Adam) of one network, by Ringlet and by PyTorch, on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.cases import Case

LEARNING_RATE = 1e-4


def ringlet_bfloat16() -> Any:
    """The type by which the native engine computes in bfloat16; None where it cannot."""
    if find_spec("ringlet.kernels.bfloat16") is None:
        return None
    from ringlet.kernels import bfloat16

    return bfloat16.BFLOAT16


def ringlet_step(
    case: Case, num_threads: int | None = None, comm: Any = None, dtype: Any = "float32"
) -> Callable[[], float]:
    """A function that trains one step and gives its mean loss: exactly what ``ringlet train`` does per batch.

    With a communicator its workers train together, each on a batch of the case's size.
    """
    from ringlet.comm.single import SingleCommunicator
    from ringlet.data import Batch, Piece
    from ringlet.engines.native import NativeReplica
    from ringlet.kernels import load
    from ringlet.optim import create, segments_of
    from ringlet.strategies.contract import Job, Layout
    from ringlet.strategies.synchronous import Synchronous
    from ringlet.training.step import training_step

    inputs, targets = case.batch()
    spec, kernels = case.spec, load()
    optimizer = create("adam", learning_rate=LEARNING_RATE)
    num_state = sum(info.size for info in spec.state)
    layout = Layout(segments_of(spec.parameters), spec.num_parameters, num_state, "float32")
    strategy = Synchronous(Job(comm or SingleCommunicator(), layout, optimizer, kernels))
    replica = NativeReplica(
        spec,
        loss=case.loss,
        local_batch_size=case.batch_size,
        kernels=kernels,
        parameters=strategy.parameters,
        gradients=strategy.gradients,
        threads=num_threads,
        dtype=dtype,
    )
    if strategy.comm.rank == 0:
        replica.initialize(0)
    strategy.attach(replica)
    replica.prepare()  # chooses algorithms now, not in the first timed step
    piece = Piece(strategy.comm.rank, 0, case.batch_size)
    num_global = case.batch_size * strategy.comm.size
    batch = Batch(inputs, targets, np.arange(case.batch_size), 0, 0, num_global, (piece,))
    counter = iter(range(1, 1 << 60))

    def step() -> float:
        rate = optimizer.learning_rate
        result = training_step(replica, strategy, batch, step=next(counter), learning_rate=rate, seed=0)
        return result.metrics.means()["loss"]

    return step


def torch_step(case: Case, *, channels_last: bool, compiled: bool = False, bfloat16: bool = False) -> Callable[[], Any]:
    """The same in PyTorch with fused Adam, from the same weights; gives the loss as a tensor.

    ``compiled``: network and loss by ``torch.compile``. ``bfloat16``: under autocast, master weights in float32.
    """
    import torch
    from torch import nn

    from benchmarks.torch_models import TorchModel
    from ringlet.models.initializers import initialize

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = TorchModel(case.spec)
    model.load(initialize(case.spec, 0, "float32"))
    model = model.to(memory_format=layout).train()
    inputs, targets = (torch.from_numpy(array) for array in case.batch())
    if inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=layout)
    binary = case.loss == "binary_cross_entropy"
    criterion = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    precision = torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext()

    def loss_of(inputs: Any, targets: Any) -> Any:
        with precision:
            return criterion(model(inputs), targets)

    forward = torch.compile(loss_of) if compiled else loss_of

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step

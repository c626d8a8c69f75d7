"""Whole training steps (forward, backward, Adam) of one network, by Ringlet and by PyTorch, on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.models import zoo
from ringlet.models.spec import ModelSpec

LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class Case:
    """A network with its batch."""

    name: str
    spec: ModelSpec
    batch_size: int
    loss: str = "categorical_cross_entropy"

    @property
    def gflop(self) -> float:
        """Arithmetic of one step, counted as direct convolution."""
        return self.spec.training_flops * self.batch_size / 1e9

    def batch(self) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Random images and targets, always the same ones."""
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(self.batch_size, *self.spec.input_shape)).astype(np.float32)
        if self.loss == "binary_cross_entropy":
            return inputs, (rng.random((self.batch_size, *self.spec.output_shape)) < 0.5).astype(np.float32)
        return inputs, rng.integers(0, self.spec.output_shape[0], self.batch_size)


def simplecnn() -> Case:
    """PyDTNN's example: 28x28 grey images, batch 64."""
    return Case("simplecnn", zoo.create("simplecnn"), 64)


def vgg16_bn() -> Case:
    """CIFAR images, batch 32."""
    return Case("vgg16_bn", zoo.create("vgg16_bn", input_shape=(3, 32, 32), num_classes=10), 32)


def resnet18() -> Case:
    """CIFAR images, batch 32."""
    return Case("resnet18", zoo.create("resnet18", input_shape=(3, 32, 32), num_classes=10), 32)


def unet(levels: int = 5) -> Case:
    """128x128 images, batch 8; five times down and up, with 8, 16, 32, 64, 128 and at the bottom 256 filters."""
    spec = zoo.create("unet", input_shape=(3, 128, 128), width=8, levels=levels)
    return Case("unet", spec, 8, "binary_cross_entropy")


CASES: dict[str, Callable[[], Case]] = {
    "simplecnn": simplecnn,
    "vgg16_bn": vgg16_bn,
    "resnet18": resnet18,
    "unet": unet,
}


def ringlet_step(case: Case, num_threads: int | None = None, comm: Any = None) -> Callable[[], float]:
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


def torch_step(case: Case, *, channels_last: bool) -> Callable[[], Any]:
    """The same in PyTorch eager with fused Adam, from the same weights; gives the loss as a tensor."""
    import torch
    from torch import nn

    from benchmarks.torch_models import TorchModel
    from ringlet.models.initializers import initialize

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = TorchModel(case.spec)
    model.load(initialize(case.spec, 0, "float32"))
    model = model.to(memory_format=layout).train()
    inputs, targets = (torch.from_numpy(array) for array in case.batch())
    inputs = inputs.contiguous(memory_format=layout)
    binary = case.loss == "binary_cross_entropy"
    criterion = nn.BCEWithLogitsLoss() if binary else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step

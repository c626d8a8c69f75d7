"""What the ranks of a test with a PyTorch module do; as a program, what a user would start with ``ringlet run``."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

import ringlet
from ringlet import Trainer
from ringlet.comm.contract import Communicator
from ringlet.strategies import copies

OPTIONS: dict[str, Any] = {
    "num_samples": 90,
    "num_epochs": 3,
    "steps_per_epoch": 4,
    "global_batch_size": 7,  # shards of four and three
    "shards": 2,
    "optimizer": "adam",
    "seed": 5,
}


class Network(nn.Module):
    """Dropout, statistics, a frozen part and a table: random streams and all kinds of tensors count."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.frozen = nn.Linear(64, 12).requires_grad_(False)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(12, 10)
        self.register_buffer("order", torch.randperm(12))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.frozen(self.norm(x).flatten(1)))
        return self.head(self.dropout(hidden)[:, self.order])


def make(rank: int) -> Network:
    """Every rank draws other weights; rank 0's are to count."""
    torch.manual_seed(rank)
    return Network()


def digests(module: nn.Module) -> dict[str, str]:
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: hashlib.sha256(tensor.detach().numpy().tobytes()).hexdigest() for name, tensor in named}


def train(comm: Communicator, shared_copy: bool = False, **options: Any) -> dict[str, Any]:
    """Train together; digests of all tensors and the metrics of the last epoch."""
    with patch.object(copies, "OWN_COPY_BYTES", 0 if shared_copy else copies.OWN_COPY_BYTES):
        module = make(comm.rank)
        trainer = Trainer(module, "digits", communicator=comm, **OPTIONS | options)
        history = trainer.fit()
    return {"tensors": digests(module), "epoch": history.epochs[-1], "test": trainer.evaluate()}


def train_keras(comm: Communicator) -> dict[str, Any]:
    """The same with a Keras model, whose variables are compared in order."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # Keras would take its time to import it
    import keras

    keras.utils.set_random_seed(comm.rank)
    layers = keras.layers
    frozen = layers.Dense(12, trainable=False)
    hidden = [layers.Flatten(), frozen, layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(10)]
    model = keras.Sequential([keras.Input((8, 8, 1)), *hidden])
    trainer = Trainer(model, "digits", communicator=comm, **OPTIONS)
    history = trainer.fit()
    values = [np.asarray(keras.ops.convert_to_numpy(value)) for value in model.weights]
    return {"digests": [hashlib.sha256(value.tobytes()).hexdigest() for value in values], "epoch": history.epochs[-1]}


def run_all(comm: Communicator, jobs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Many in one start of ranks, the last with a Keras model."""
    return {name: train(comm, **options) for name, options in jobs.items()} | {"keras": train_keras(comm)}


def differ(comm: Communicator) -> str:
    """Ranks whose modules are not the same network."""
    module = make(0)
    if comm.rank:
        module.head = nn.Sequential(nn.Linear(12, 10), nn.Linear(10, 10))
    try:
        Trainer(module, "digits", communicator=comm, **OPTIONS)
    except ringlet.RingletError as error:
        return str(error)
    return "nothing"


def main() -> None:
    """Train with checkpoints, or resume; leave digests."""
    folder = Path(sys.argv[1])
    ringlet.init()
    module = make(ringlet.rank())
    trainer = Trainer(module, "digits", run_dir=str(folder / "run"), checkpoint_every="2 steps", **OPTIONS)
    trainer.fit(resume="auto")
    if ringlet.rank() == 0:
        (folder / "digests.json").write_text(json.dumps(digests(module)), encoding="utf-8")


if __name__ == "__main__":
    main()

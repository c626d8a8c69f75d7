"""MNIST with PyTorch, written as for Horovod: ``ringlet run -n 2 examples/torch_mnist.py --data FOLDER``.

FOLDER holds MNIST's four idx files. Without it the program trains on Ringlet's built-in digits, 1,797 images of 8x8
pixels enlarged to 28x28. With ``--checkpoints`` it saves after every epoch and goes on from the newest file there.

Of an ordinary PyTorch program only the lines with ``hvd`` are new.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import ringlet
import ringlet.torch as hvd


class Net(nn.Module):
    """The network of PyTorch's MNIST example of old: two convolutions, two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.drop(self.conv2(x)), 2))
        x = functional.relu(self.fc1(x.flatten(1)))
        x = functional.dropout(x, training=self.training)
        return self.fc2(x)


def load_data(options: argparse.Namespace) -> tuple[TensorDataset, TensorDataset]:
    """Images (N, 1, 28, 28), normalised, and labels: for training and for the test."""
    if options.data is None:
        dataset = ringlet.load_dataset("digits", image_size=28)
    else:
        dataset = ringlet.load_dataset("mnist", path=options.data, num_samples=options.samples)
    parts = []
    for source in (dataset.train, dataset.test):
        images, labels = source.read(np.arange(len(source)))
        parts.append(TensorDataset(torch.from_numpy(dataset.normalization.apply(images)), torch.from_numpy(labels)))
    return parts[0], parts[1]


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, schedule: hvd.WarmUp) -> float:
    """One epoch; the mean loss over all samples of all ranks."""
    model.train()
    total = num_samples = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(labels)
        num_samples += len(labels)
    return hvd.sample_weighted(total / num_samples, int(num_samples))


@torch.no_grad()
def test(model: nn.Module, samples: TensorDataset) -> dict[str, float]:
    """Loss and accuracy over all test samples, of which every rank computes its share."""
    model.eval()
    loader = DataLoader(samples, batch_size=1000, sampler=hvd.UnevenSampler(samples))
    loss = correct = 0.0
    for images, labels in loader:
        outputs = model(images)
        loss += functional.cross_entropy(outputs, labels, reduction="sum").item()
        correct += (outputs.argmax(1) == labels).sum().item()
    count = max(len(loader.sampler), 1)
    return hvd.average_metrics({"loss": loss / count, "accuracy": correct / count}, len(loader.sampler))


def newest(folder: Path | None) -> str | None:
    """The last checkpoint in a folder, as rank 0 sees it."""
    found = sorted(folder.glob("epoch-*.safetensors")) if folder and hvd.rank() == 0 else []
    return hvd.broadcast_object(str(found[-1]) if found else None, root_rank=0)


def main() -> None:
    """Train, test, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST's idx files (default: built-in digits)")
    parser.add_argument("--samples", type=int, help="train on so many samples of MNIST only")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.02, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--momentum", type=float, default=0.9, help="default: %(default)s")
    parser.add_argument("--warmup-epochs", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=42, help="default: %(default)s")
    parser.add_argument("--fp16-allreduce", action="store_true", help="exchange gradients in 16 bits")
    parser.add_argument("--checkpoints", type=Path, help="folder to save to and to go on from")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(options.seed)
    train_samples, test_samples = load_data(options)
    sampler = DistributedSampler(train_samples, num_replicas=hvd.size(), rank=hvd.rank(), seed=options.seed)
    loader = DataLoader(train_samples, batch_size=options.batch_size, sampler=sampler)

    model = Net()
    # A batch of all ranks is size times as large, so the learning rate is too; it is reached step by step.
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=options.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)
    schedule = hvd.WarmUp(optimizer, round(options.warmup_epochs * len(loader)))

    first_epoch = 1
    if checkpoint := newest(options.checkpoints):
        state = hvd.load(checkpoint)  # rank 0 reads, all get it
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first_epoch = state["epoch"] + 1

    for epoch in range(first_epoch, options.epochs + 1):
        sampler.set_epoch(epoch)
        training_loss = train(model, loader, optimizer, schedule)
        found = test(model, test_samples)
        if hvd.rank() == 0:
            figures = f"test loss {found['loss']:.4f}, accuracy {found['accuracy']:.4f}"
            print(f"epoch {epoch} of {options.epochs}: training loss {training_loss:.4f}, {figures}", flush=True)
        if options.checkpoints:
            options.checkpoints.mkdir(parents=True, exist_ok=True)
            states = {"model": model, "optimizer": optimizer, "schedule": schedule}
            state = {name: entry.state_dict() for name, entry in states.items()} | {"epoch": epoch}
            hvd.save(state, options.checkpoints / f"epoch-{epoch:04d}.safetensors")  # rank 0 writes


if __name__ == "__main__":
    main()

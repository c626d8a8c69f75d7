"""MNIST with PyTorch's own DDP over Ringlet: ``ringlet run -n 2 examples/ddp_mnist.py --data FOLDER``.

An ordinary DDP program in which only the name of the backend differs. It also runs under torchrun and mpiexec. FOLDER
holds MNIST's four idx files; without it the built-in digits serve, 8x8 pixels enlarged to 28x28.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import ringlet
import ringlet.torch  # makes the backend known; with Ringlet installed, PyTorch finds it by itself


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


def network() -> nn.Module:
    """Two convolutions with batch normalisation, one dense layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=5),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=5),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, samples: TensorDataset) -> float:
    """Over all test samples: each rank counts its share, and the counts are added up."""
    model.eval()
    images, labels = (values[dist.get_rank() :: dist.get_world_size()] for values in samples.tensors)
    counts = torch.tensor([(model(images).argmax(1) == labels).sum().item(), len(labels)], dtype=torch.float64)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST's idx files (default: built-in digits)")
    parser.add_argument("--samples", type=int, help="train on so many samples of MNIST only")
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.02, help="default: %(default)s")
    parser.add_argument("--backend", default="ringlet", help="default: %(default)s")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    torch.manual_seed(0)
    train_samples, test_samples = load_data(options)
    sampler = DistributedSampler(train_samples)
    loader = DataLoader(train_samples, batch_size=options.batch_size, sampler=sampler)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        found = accuracy(model.module, test_samples)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} of {options.epochs}: accuracy {found:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

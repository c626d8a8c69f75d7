"""VGG19 with batch normalisation on CIFAR-10: ``ringlet run -n 2 examples/torch_vgg19_cifar10.py --data FOLDER``.

The network and recipe of multi-GPU studies with PyTorch (20,040,522 parameters; SGD with momentum and weight decay,
random shifts and flips). ``--data FOLDER`` names a folder with CIFAR-10's binary files (``data_batch_1.bin`` …,
``test_batch.bin``). Without it the program trains on *synthetic* images of the same shape, ten smooth patterns in
noise: good for a trial of the machine, but its accuracy says nothing about CIFAR-10. ``--width 0.25`` takes a quarter
of the channels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import ringlet
import ringlet.torch as hvd
from ringlet.data.normalization import CIFAR10

STACKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Channels, and how many convolutions have them before a pool halves the image."""


def vgg19_bn(width: float = 1.0) -> nn.Sequential:
    """Sixteen convolutions and one dense layer: the form for images of 32x32."""
    layers: list[nn.Module] = []
    channels = 3
    for full, repeats in STACKS:
        for _ in range(repeats):
            wide = max(1, round(full * width))
            layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
            channels = wide
        layers.append(nn.MaxPool2d(2))
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, 10))
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return network


def load_data(options: argparse.Namespace) -> tuple[TensorDataset, TensorDataset, str]:
    """Images (N, 3, 32, 32), normalised, and labels, for training and for the test; and what they are."""
    if options.data is None:
        count = options.samples or 384
        dataset = ringlet.load_dataset("synthetic", input_shape=(3, 32, 32), num_classes=10, num_samples=count)
        name = "synthetic images, as no CIFAR-10 was given"
    else:
        dataset = ringlet.load_dataset("cifar10", path=options.data, num_samples=options.samples)
        name = "images of CIFAR-10"
    parts = []
    for source, limit in ((dataset.train, None), (dataset.test, options.test_samples)):
        images, labels = source.read(np.arange(len(source))[:limit])
        parts.append(TensorDataset(torch.from_numpy(CIFAR10.apply(images)), torch.from_numpy(labels)))
    return parts[0], parts[1], name


def augmented(images: Tensor) -> Tensor:
    """Each image mirrored or not, and moved by up to four pixels each way."""
    mirrored = torch.where(torch.rand(len(images), 1, 1, 1) < 0.5, images.flip(3), images)
    padded = functional.pad(mirrored, (4, 4, 4, 4))
    places = torch.randint(0, 9, (len(images), 2)).tolist()
    return torch.stack([image[:, y : y + 32, x : x + 32] for image, (y, x) in zip(padded, places, strict=True)])


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, schedule: hvd.WarmUp) -> float:
    """One epoch; the mean loss over all samples of all ranks."""
    model.train()
    total, num_samples = 0.0, 0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(augmented(images)), labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(labels)
        num_samples += len(labels)
    return hvd.sample_weighted(total / num_samples, num_samples)


@torch.no_grad()
def test(model: nn.Module, samples: TensorDataset) -> float:
    """Accuracy over all test samples, of which every rank computes its share.

    Ranks have seen different batches, so their running statistics differ: all count with the mean.
    """
    for name, values in model.named_buffers():
        if values.is_floating_point():
            hvd.allreduce_(values, name=f"statistics.{name}")
    model.eval()
    loader = DataLoader(samples, batch_size=100, sampler=hvd.UnevenSampler(samples))
    correct = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    count = len(loader.sampler)
    return hvd.sample_weighted(correct / max(count, 1), count)


def main() -> None:
    """Train and test; rank 0 saves the best network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10's binary files (default: synthetic images)")
    parser.add_argument("--samples", type=int, help="train on so many samples only")
    parser.add_argument("--test-samples", type=int, help="test on so many samples only")
    parser.add_argument("--width", type=float, default=1.0, help="channels as a share of VGG's (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="of each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate of one rank (default: %(default)s)")
    parser.add_argument("--warmup-epochs", type=float, default=1.0, help="default: %(default)s")
    parser.add_argument("--save", type=Path, help="file for the best network")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(hvd.rank())  # ranks shift and mirror differently; weights come from rank 0
    train_samples, test_samples, name = load_data(options)
    sampler = hvd.DistributedSampler(train_samples)
    loader = DataLoader(train_samples, batch_size=options.batch_size, sampler=sampler, drop_last=True)
    model = vgg19_bn(options.width)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    if hvd.rank() == 0:
        print(f"{num_parameters:,} parameters; {len(train_samples)} {name}; {hvd.size()} ranks", flush=True)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=hvd.scaled_rate(options.lr), momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    schedule = hvd.WarmUp(optimizer, round(options.warmup_epochs * len(loader)))
    best = 0.0
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        start = perf_counter()
        loss = train(model, loader, optimizer, schedule)
        rate = len(loader) * options.batch_size * hvd.size() / (perf_counter() - start)
        accuracy = test(model, test_samples)
        if hvd.rank() == 0:
            figures = f"loss {loss:.4f}, accuracy {accuracy:.4f}, {rate:.0f} images/s"
            print(f"epoch {epoch} of {options.epochs}: {figures}", flush=True)
        if options.save and accuracy > best:
            hvd.save(model.state_dict(), options.save)  # rank 0 writes
        best = max(best, accuracy)


if __name__ == "__main__":
    main()

"""Networks of torchvision and timm with random weights: ``python foreign_networks.py FOLDER`` writes their state files.

Both come without their dependencies into a folder of their own (see the Makefile): the compiled part of torchvision is
made for one build of PyTorch, other packages would find it and fail. Networks do not need it.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NUM_CLASSES = 5
NETWORKS = Path(sys.prefix) / "networks"
CASES = {
    "resnet18": 64,
    "resnet50": 64,
    "vgg11_bn": 64,
    "densenet121": 64,
    "googlenet": 64,
    "inception_v3": 96,
    "mobilenetv1_100": 96,
}


def some_images(size: int) -> Any:
    return np.random.default_rng(1).normal(size=(2, 3, size, size)).astype(np.float32)


def _make(name: str) -> Any:
    import torch
    from torchvision import models

    if name == "mobilenetv1_100":
        import timm

        return timm.create_model(name, num_classes=NUM_CLASSES)
    options = {"init_weights": False} if name in ("vgg11_bn", "googlenet", "inception_v3") else {}
    made = getattr(models, name)(num_classes=NUM_CLASSES, **options)
    if name == "vgg11_bn":  # dense layers of 16 take less memory than those of 4096
        made.avgpool = torch.nn.Identity()
        made.classifier[0], made.classifier[3] = torch.nn.Linear(512 * 4, 16), torch.nn.Linear(16, 16)
        made.classifier[6] = torch.nn.Linear(16, NUM_CLASSES)
    return made


def _write(name: str, size: int, folder: Path) -> None:
    """The state, and the probabilities of some images; logits are scaled to an ordinary size."""
    import torch

    torch.manual_seed(3)
    made = _make(name).eval()
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.uniform_(0.5, 1.0)
            module.bias.uniform_(-0.3, 0.3)
            module.running_mean.uniform_(-0.3, 0.3)
            module.running_var.uniform_(0.5, 2.0)
    *_, last = (module for module in made.modules() if isinstance(module, torch.nn.Linear))
    images = torch.from_numpy(some_images(size))
    factor = 1 / float(made(images).std())
    last.weight *= factor
    last.bias *= factor
    torch.save(made.state_dict(), folder / f"{name}.pth")
    np.save(folder / f"{name}.npy", torch.softmax(made(images), 1).numpy())


def _without_padding(pool: Any, value: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *_: Any) -> Any:
    """Average pools that do not count padding, as the paper's Inception v3; torchvision's does count it."""
    return pool(value, kernel_size, stride, padding, count_include_pad=False)


def main() -> None:
    sys.path.append(str(NETWORKS))
    sys.modules["torchvision._meta_registrations"] = ModuleType("not needed for networks")
    import torch

    torch.nn.functional.avg_pool2d = partial(_without_padding, torch.nn.functional.avg_pool2d)
    with torch.no_grad():
        for name, size in CASES.items():
            _write(name, size, Path(sys.argv[1]))


if __name__ == "__main__":
    main()

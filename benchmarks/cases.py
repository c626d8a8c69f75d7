"""The networks that are timed, with their inputs and batches.

``small``: networks for small images, each with a usual batch. ``published``: every family of the zoo at the input size
of its publication, in batches of 1, 4 and 16; the U-Net is the one that 512x512 images give by default, with seven
levels and 8 to 1,024 filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.models import zoo
from ringlet.models.spec import ModelSpec

PUBLISHED_BATCHES = (4, 1, 16)
"""In the order in which they are measured, if time is short."""


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

    @property
    def network(self) -> str:
        """The name without the size of the input."""
        return self.name.partition("@")[0]

    @property
    def input(self) -> str:
        """``28x28`` or, of other inputs, all extents."""
        shape = self.spec.input_shape
        return "x".join(map(str, shape[1:] if len(shape) == 3 else shape))

    @property
    def has_dropout(self) -> bool:
        """Whether the first loss depends on masks, which differ between libraries."""
        return any(node.op == "dropout" and node.attributes["rate"] for node in self.spec.nodes)

    def batch(self) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """Random images and targets, always the same ones."""
        rng = np.random.default_rng(0)
        inputs = rng.normal(size=(self.batch_size, *self.spec.input_shape)).astype(np.float32)
        if self.loss == "binary_cross_entropy":
            return inputs, (rng.random((self.batch_size, *self.spec.output_shape)) < 0.5).astype(np.float32)
        return inputs, rng.integers(0, self.spec.output_shape[0], self.batch_size)


def _case(
    name: str, batch_size: int, loss: str = "categorical_cross_entropy", *, network: str = "", **options: Any
) -> Case:
    return Case(name, zoo.create(network or name, **options), batch_size, loss)


def unet(levels: int = 5) -> Case:
    """128x128 images, batch 8; five times down and up, with 8, 16, 32, 64, 128 and at the bottom 256 filters."""
    return _case("unet", 8, "binary_cross_entropy", input_shape=(3, 128, 128), width=8, levels=levels)


CIFAR: dict[str, Any] = {"input_shape": (3, 32, 32), "num_classes": 10}
SMALL: dict[str, Callable[[], Case]] = {
    "simplecnn": partial(_case, "simplecnn", 64),
    "vgg16_bn": partial(_case, "vgg16_bn", 32, **CIFAR),
    "resnet18": partial(_case, "resnet18", 32, **CIFAR),
    "unet": unet,
    "resnet20": partial(_case, "resnet20", 64, **CIFAR),
    "alexnet_cifar10": partial(_case, "alexnet_cifar10", 64, **CIFAR),
    "vgg3dobn": partial(_case, "vgg3dobn", 64, **CIFAR),
    "mnistcnn": partial(_case, "mnistcnn", 64),
    "simplemlp": partial(_case, "simplemlp", 64),
}
"""Each with its usual batch."""
PUBLISHED: dict[str, Callable[[], Case]] = {
    "unet@512": partial(_case, "unet@512", 4, "binary_cross_entropy", network="unet", input_shape=(3, 512, 512)),
    "resnet50@224": partial(_case, "resnet50@224", 4, network="resnet50"),
    "densenet121@224": partial(_case, "densenet121@224", 4, network="densenet121"),
    "mobilenetv1@224": partial(_case, "mobilenetv1@224", 4, network="mobilenetv1"),
    "googlenet@224": partial(_case, "googlenet@224", 4, network="googlenet"),
    "resnet18@224": partial(_case, "resnet18@224", 4, network="resnet18"),
    "alexnet@227": partial(_case, "alexnet@227", 4, network="alexnet"),
    "inceptionv3@299": partial(_case, "inceptionv3@299", 4, network="inceptionv3"),
    "vgg16@224": partial(_case, "vgg16@224", 4, network="vgg16"),
}
"""Every family at its published input size."""
BATCHES: Mapping[str, Sequence[int]] = {"unet@512": (4, 1, 2, 12)}
"""Where they are not those of all published networks."""
CASES: dict[str, Callable[[], Case]] = SMALL | PUBLISHED
SETS: dict[str, Mapping[str, Callable[[], Case]]] = {"small": SMALL, "published": PUBLISHED, "all": CASES}


def make(name: str, batch_size: int | None = None) -> Case:
    """One case by its name, with its usual or another batch."""
    case = CASES[name]()
    return replace(case, batch_size=batch_size) if batch_size else case


def chosen(set_name: str, models: str = "", batches: str = "") -> list[tuple[str, int]]:
    """Names and batches of a set, or of the comma list ``models`` (patterns such as ``resnet*@224``).

    The first batch of all networks comes first: where time ends, each has at least that one.
    """
    patterns = [pattern for pattern in models.split(",") if pattern]
    known = CASES if patterns else SETS[set_name]
    names = [name for name in known if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    unknown = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in known)]
    if unknown:
        raise SystemExit(f"no network is called {', '.join(unknown)}: expected some of {', '.join(CASES)}")
    sizes = {name: [int(size) for size in batches.split(",")] if batches else usual_batches(name) for name in names}
    rounds = range(max(map(len, sizes.values()), default=0))
    return [(name, sizes[name][place]) for place in rounds for name in names if place < len(sizes[name])]


def usual_batches(name: str) -> list[int]:
    """Those of its set."""
    return list(BATCHES.get(name, PUBLISHED_BATCHES)) if name in PUBLISHED else [CASES[name]().batch_size]

"""A data set, a network, a strategy and a tracker, each as small as can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ringlet.data.requests import Parts, Request
from ringlet.data.source import ArraySource
from ringlet.models.builder import build, dense, flatten, image_input, relu, softmax
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo import Member
from ringlet.strategies.synchronous import Synchronous
from ringlet.training.events import Event, event_name

NOT_A_PLUGIN = 3


def load_stripes(request: Request) -> Parts:
    """Dark and bright images, 6x6."""
    count = request.num_samples or 200
    labels = np.arange(count) % 2
    noise = np.random.default_rng(request.seed).integers(0, 100, (count, 1, 6, 6))
    images = (noise + 150 * labels[:, None, None, None]).astype(np.uint8)
    half = count // 2
    train, test = ArraySource(images[half:], labels[half:], 2), ArraySource(images[:half], labels[:half], 2)
    return Parts(train, test, class_names=("dark", "bright"), complete=True)


def _linear(name: str, input_shape: tuple[int, ...], num_classes: int, *, width: int) -> ModelSpec:
    hidden = relu(dense(flatten(image_input(input_shape)), width))
    return build(name, softmax(dense(hidden, num_classes)))


TINY = Member("tiny_linear", _linear, "one hidden layer", (1, 6, 6), 2, options={"width": 3})


def make_polite(argument: str, *parts: Any, **options: Any) -> Synchronous:
    """The synchronous strategy, with a remark."""
    return Synchronous(*parts, **options)


def make_lines(argument: str, run_directory: Path) -> Any:
    """Writes the names of events, one per line."""
    target = run_directory / (argument or "lines.txt")

    def write(event: Event) -> None:
        with target.open("a") as file:
            file.write(f"{event_name(event)}\n")

    return write

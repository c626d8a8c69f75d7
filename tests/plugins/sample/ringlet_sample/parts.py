"""One component of every kind, each as small as can be; with its entry point it is complete."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from ringlet.component import Problem, option
from ringlet.data.augmentation import Draw, Images, Transform
from ringlet.data.formats import DatasetFormat
from ringlet.data.requests import Parts, Request
from ringlet.data.source import ArraySource
from ringlet.losses import PointwiseLoss
from ringlet.metrics import metric
from ringlet.models.builder import build, dense, flatten, image_input, relu, softmax
from ringlet.models.spec import ModelSpec
from ringlet.models.zoo import Member, NetworkOptions
from ringlet.optim.base import Optimizer, State, UpdateContext
from ringlet.optim.schedules.base import Time
from ringlet.optim.schedules.rates import Rate
from ringlet.strategies.contract import Job, Strategy, StrategyConfig
from ringlet.strategies.synchronous import Synchronous
from ringlet.trackers.registry import TrackerConfig
from ringlet.training.events import Event, event_name

NOT_A_PLUGIN = 3


@final
class Stripes(DatasetFormat):
    """Dark and bright images, 6x6."""

    name: ClassVar[str] = "stripes"
    contrast: int = option(150, "how much brighter bright images are", ge=1, le=155)

    def load(self, request: Request) -> Parts:
        """Half of the samples for training, half for test."""
        count = request.num_samples or 200
        labels = np.arange(count) % 2
        noise = np.random.default_rng(request.seed).integers(0, 100, (count, 1, 6, 6))
        images = (noise + self.contrast * labels[:, None, None, None]).astype(np.uint8)
        half = count // 2
        train, test = ArraySource(images[half:], labels[half:], 2), ArraySource(images[:half], labels[:half], 2)
        return Parts(train, test, class_names=("dark", "bright"), complete=True)


@final
class Cubic(PointwiseLoss):
    """``|p - t|³`` of every output."""

    name: ClassVar[str] = "cubic"
    factor: float = option(1.0, "factor of the loss", gt=0)

    def points(self, prediction: Any, target: Any, *, logits: bool) -> tuple[Any, Any]:
        """Values and gradient in NumPy."""
        error = prediction - target
        return self.factor * np.abs(error) ** 3, 3 * self.factor * error * np.abs(error)

    def point_tensors(self, ops: Any, prediction: Any, target: Any, *, logits: bool) -> Any:
        """The same for engines torch and keras."""
        return self.factor * ops.absolute(prediction - target) ** 3


@metric
def doubt(outputs: Any, targets: Any) -> Any:
    """How much of the probability the winner lacks."""
    return 1 - outputs.max(axis=1)


def _linear(name: str, input_shape: tuple[int, ...], num_classes: int, *, width: int) -> ModelSpec:
    hidden = relu(dense(flatten(image_input(input_shape)), width))
    return build(name, softmax(dense(hidden, num_classes)))


class TinyOptions(NetworkOptions):
    """What users may change."""

    width: int = option(3, "units of the hidden layer", ge=1)


TINY = Member("tiny_linear", _linear, "one hidden layer", (1, 6, 6), 2, options=TinyOptions())


@final
class Lion(Optimizer):
    """The sign of an average of gradients."""

    name: ClassVar[str] = "lion"
    learning_rate: float = option(1e-3, "learning rate", gt=0)
    beta1: float = option(0.9, "share of the average in the step", ge=0, lt=1)
    beta3: float = option(0.99, "share of the average that is kept", ge=0, lt=1)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The average."""
        return ("average",)

    def _apply(self, parameters: Any, gradients: Any, state: State, context: UpdateContext) -> None:
        average = state["average"]
        parameters -= context.learning_rate * np.sign(self.beta1 * average + (1 - self.beta1) * gradients)
        average *= self.beta3
        average += (1 - self.beta3) * gradients


@final
class Sawtooth(Rate):
    """The rate falls to a share of itself within every few epochs, then starts again."""

    name: ClassVar[str] = "sawtooth"
    period: int = option(4, "epochs of a tooth", ge=1)
    low: float = option(0.5, "share of the rate at its end", gt=0, le=1)

    def adjust(self, learning_rate: float, time: Time) -> float:
        """A line down."""
        return learning_rate * (1 - (1 - self.low) * (time.epoch % self.period) / self.period)


@final
class Polite(StrategyConfig):
    """The synchronous strategy, under another name."""

    name: ClassVar[str] = "polite"
    argument: ClassVar[str] = "greeting"
    lockstep: ClassVar[bool] = True
    greeting: str = option("hello", "what it says")

    def contradictions(self) -> Iterable[Problem]:
        """Some words are not polite."""
        if self.greeting == "rude":
            yield Problem("greeting", "'rude' is not polite")

    def build(self, job: Job) -> Strategy:
        """The strategy; every rank must call."""
        return Synchronous(job)


@final
class Darken(Transform):
    """Images lose light."""

    name: ClassVar[str] = "darken"
    factor: float = option(0.5, "what is left of it", gt=0, lt=1)

    def apply(self, images: Images, draw: Draw) -> Images:
        """The changed images."""
        chosen = draw.chosen(5000, self.probability)
        images[0][chosen] = (images[0][chosen] * self.factor).astype(images[0].dtype)
        return images


@final
class Lines(TrackerConfig):
    """The names of events, one per line."""

    name: ClassVar[str] = "lines"
    argument: ClassVar[str] = "file"
    file: str = option("lines.txt", "file in the run directory")

    def build(self, run_directory: Path) -> Any:
        """A function that is told every event."""
        target = run_directory / self.file

        def write(event: Event) -> None:
            with target.open("a") as file:
                file.write(f"{event_name(event)}\n")

        return write

"""The sections of a configuration: tables of TOML, headings of the help.

Three kinds: a *plain* section has options of its own (:class:`Training`), in a *chosen* one a name chooses the
component that has the options (``[optimizer] name = "lars"``), and a *set* holds any number of components by their
names (``[schedule.warm_up]``, ``[schedule.cosine]``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import Any, Literal

from ringlet.component import Component, Problem, Registry, option
from ringlet.errors import ConfigError
from ringlet.option_text import parse_pairs

OptionValue = str | int | float | bool
MAX_COUNT = 1_000_000
AUTO = "auto"
"""In place of a network: the data decide."""


class Model(Component):
    """The network: one of the zoo, with the options of its family."""

    network: str = option(AUTO, "network of the zoo: see `ringlet models`; auto: one that fits the data", min_length=1)
    input_shape: tuple[int, ...] | None = option(None, "channels,height,width; default: the data set's")
    num_classes: int | None = option(None, "number of classes; default: the data set's", ge=1)
    last_layer: Literal["softmax", "sigmoid", "linear"] | None = option(
        None, "what the network ends in; default: softmax for classes, sigmoid for labels and one mask, else linear"
    )
    weights: str | None = option(
        None, "start from these weights: a run, a model file, or a state file of torchvision, timm or Keras"
    )
    options: dict[str, OptionValue | tuple[int, ...]] = option({}, "options of the family, such as levels=4,width=8")

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """``name`` is the network; whatever else is no field is an option of its family."""
        own = {("network" if name == "name" else name): value for name, value in values.items()}
        family = {name: own.pop(name) for name in list(own) if name not in cls.model_fields}
        options = {**own.get("options", {}), **family} if isinstance(own.get("options", {}), dict) else own["options"]
        if isinstance(options, dict):
            options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        return {**own, "options": options}

    def contradictions(self) -> Iterable[Problem]:
        """A shape that is none."""
        shape = self.input_shape
        if shape is not None and (len(shape) not in (1, 3) or min(shape) < 1):
            given = ",".join(map(str, shape))
            yield Problem("input_shape", f"{given}: expected channels,height,width, such as 3,32,32, all at least 1")

    def table(self) -> dict[str, Any]:
        """The network is called ``name``, the options of its family stand beside it."""
        own = super().table()
        return {"name": own.pop("network"), **{k: v for k, v in own.items() if k != "options"}, **own["options"]}


class Transfer(Component):
    """Transfer learning: which parts of the network learn, when, and at which rate.

    Parts are patterns of node or parameter names (``conv1``, ``norm*``), ``head`` (the last layer), ``backbone`` (all
    but it) or ``..NODE`` (all up to a node); ``!PATTERN`` takes away again.
    """

    freeze: tuple[str, ...] = option(
        (),
        "parts that do not learn, comma-separated: backbone, head, ..NODE or patterns such as conv*; !PATTERN: but not",
    )
    unfreeze_at: int | None = option(
        None, "epoch from which on frozen parts learn too; default: they stay frozen", unit="epochs", ge=2, le=MAX_COUNT
    )
    rates: tuple[str, ...] = option((), "factors of the learning rate by part, such as backbone=0.1,..conv5=0.01")

    @property
    def factors(self) -> list[tuple[str, float]]:
        """Patterns with their factors; later ones win."""
        return [
            (pattern.strip(), float(factor)) for pattern, _, factor in (text.rpartition("=") for text in self.rates)
        ]

    def contradictions(self) -> Iterable[Problem]:
        """Rates that are none, and nothing to unfreeze."""
        for text in self.rates:
            pattern, _, factor = text.rpartition("=")
            try:
                fits = bool(pattern.strip()) and 0 < float(factor) < float("inf")
            except ValueError:
                fits = False
            if not fits:
                yield Problem("rates", f"'{text}': expected PART=FACTOR, such as backbone=0.1, with a factor above 0")
        if self.unfreeze_at is not None and not self.freeze:
            yield Problem("unfreeze_at", "nothing is frozen: give freeze, such as freeze=backbone, or leave it out")


class Training(Component):
    """Training: how long, how much at a time, and what is minimised."""

    num_epochs: int = option(
        50, "passes over the training data", unit="epochs", affects_result=False, ge=0, le=MAX_COUNT
    )
    stop_after: int | None = option(
        None,
        "leave after so many epochs in all, with a checkpoint; the schedule stays that of num_epochs",
        unit="epochs",
        affects_result=False,
        ge=1,
        le=MAX_COUNT,
    )
    steps_per_epoch: int = option(0, "steps of one epoch; 0: the whole training data", unit="steps", ge=0)
    local_batch_size: int | None = option(
        None,
        "samples of a pass of one worker (or shard); default: 64, with masks 8",
        unit="samples",
        ge=1,
        le=MAX_COUNT,
    )
    global_batch_size: int | None = option(
        None, "samples of a step over all workers", unit="samples", ge=1, le=MAX_COUNT
    )
    class_weights: str | tuple[float, ...] | dict[str, float] | None = option(
        None,
        "factors of the losses of classes: balanced (the rarer, the more), numbers in the order of the classes, or "
        "CLASS=NUMBER,…",
    )
    dtype: Literal["float32", "float64", "bfloat16"] = option(
        "float32", "precision of the arithmetic; bfloat16: of passes, with weights and updates in float32"
    )
    seed: int = option(0, "seed of weights, sample order, dropout and augmentation", ge=0, lt=2**63)
    clip_value: float | None = option(None, "clip every gradient to ± this value", gt=0)
    clip_norm: float | None = option(None, "scale gradients down to this global norm", gt=0)
    learning_rate_scaling: bool = option(
        False, "multiply the learning rate by the number of workers (shards); add schedule=warm_up to rise to it"
    )
    evaluate: bool | None = option(
        None, "test before and after training; default: after, if there are test data", affects_result=False
    )
    evaluate_only: bool = option(False, "evaluate on the test data, do not train")

    @property
    def parameter_dtype(self) -> str:
        """The type of weights, gradients, updates and samples; ``dtype`` is that of passes."""
        return "float32" if self.dtype == "bfloat16" else self.dtype

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Weights of classes as they are meant: text is taken apart, lists and arrays become tuples."""
        given = values.get("class_weights")
        return values if given is None else {**values, "class_weights": _class_weights(given)}

    def contradictions(self) -> Iterable[Problem]:
        """Two ways to clip, weights that are none."""
        if self.clip_value is not None and self.clip_norm is not None:
            yield Problem("", "clip_value and clip_norm exclude each other: give one of them")
        weights = self.class_weights
        if isinstance(weights, str) and weights != "balanced":
            yield Problem("class_weights", f"expected balanced, numbers or CLASS=NUMBER,…, received '{weights}'")
        numbers = weights.values() if isinstance(weights, dict) else () if isinstance(weights, str) else weights or ()
        if any(number < 0 for number in numbers):
            yield Problem("class_weights", f"expected numbers of at least 0, received {min(numbers):g}")


def _class_weights(given: Any) -> Any:
    """``balanced``, a tuple of numbers or a table of them by class; what is neither stays as it is."""
    if isinstance(given, str):
        text = given.strip()
        try:
            if "=" in text:
                return {str(name): float(number) for name, number in parse_pairs(text).items()}
            return text.lower() if text.isalpha() else tuple(float(number) for number in text.split(",") if number)
        except (TypeError, ValueError):
            return text
    if isinstance(given, Mapping):
        return {str(name): float(number) if _is_number(number) else number for name, number in given.items()}
    if isinstance(given, Iterable):
        return tuple(float(number) if _is_number(number) else number for number in given)
    return given


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


class Workers(Component):
    """Workers: who computes which part of a batch."""

    shards: int | None = option(
        None, "cut every step into so many shards: the same bits on any number of workers up to it", ge=1, le=65_536
    )
    accumulate: int = option(1, "passes of every worker per step, their gradients added up", ge=1, le=65_536)
    partition: Literal["shuffled", "contiguous", "replicated"] = option(
        "shuffled",
        "samples of a worker: from one permutation of all per epoch, always from its own block, or all of them",
    )
    parallel: Literal["sequential", "data"] | None = option(
        None, "data: as many workers as were started; sequential: refuse more than one"
    )

    def contradictions(self) -> Iterable[Problem]:
        """Shards say how many passes there are."""
        if self.shards is not None and self.accumulate > 1:
            yield Problem(
                "",
                f"shards = {self.shards} and accumulate = {self.accumulate} exclude each other: workers compute as "
                "many shards one after the other as they have",
            )


class Checkpoint(Component):
    """Checkpoints: when they are written, and which one a run resumes from."""

    every: str = option(
        "auto",
        "'100 steps', '2 epochs', never or auto: after epochs, so rarely that it costs 3 % at most",
        affects_result=False,
        min_length=1,
    )
    keep: int = option(
        2, "newest checkpoints to keep, besides the best one; 0: all", affects_result=False, ge=0, le=MAX_COUNT
    )
    optimizer: bool = option(
        True, "save the optimizer's state too; without it a checkpoint is smaller", affects_result=False
    )
    location: str | None = option(
        None,
        "where checkpoints go: a folder, or a URL such as s3://bucket/run; default: the run directory",
        affects_result=False,
        min_length=1,
    )
    resume: str | None = option(
        None,
        "resume from a checkpoint of the run directory: auto, a number of steps, or epoch:N",
        affects_result=False,
        min_length=1,
    )
    allow_changed_data: bool = option(
        False,
        "resume although the data are not those that the checkpoint was written with",
        affects_result=False,
    )
    break_lock: bool = option(
        False,
        "resume a run whose lock a process of another machine has left; make sure that it has ended",
        affects_result=False,
    )

    def contradictions(self) -> Iterable[Problem]:
        """Texts that cannot be read."""
        for name, parse in (("every", Interval.parse), ("resume", ResumePoint.parse)):
            try:
                parse(getattr(self, name))
            except ConfigError as error:
                yield Problem(name, str(error))


class Guards(Component):
    """Guards: what happens when something goes wrong."""

    on_nan: Literal["stop", "skip"] = option(
        "stop", "a loss, gradient or statistic that is not finite: stop, or skip the update", affects_result=False
    )
    digest_every: int = option(
        100,
        "compare the workers' copies of the network every so many steps; 0: never",
        unit="steps",
        affects_result=False,
        ge=0,
    )
    stall_seconds: float | None = option(
        None,
        "end the run after so long without progress; default: 30, or 10 steps if those take longer",
        unit="seconds",
        affects_result=False,
        gt=0,
    )


class Output(Component):
    """Output: what a run writes, and where."""

    run_dir: str | None = option(
        None, "run directory; default: runs/<model>-<dataset>-<time>", affects_result=False, min_length=1
    )
    history_file: str | None = option(
        None, "write the metrics of every epoch to this JSON file", affects_result=False, min_length=1
    )
    timeline: str | None = option(
        None,
        "write a trace of all workers to this file, for Perfetto or chrome://tracing",
        affects_result=False,
        min_length=1,
    )
    profile: bool = option(False, "say at the end where the time went", affects_result=False)
    num_pictures: int = option(
        4,
        "validation samples that are drawn after every epoch, where masks are learned; 0: none",
        affects_result=False,
        ge=0,
        le=100,
    )


@dataclass(frozen=True)
class Section:
    """One section; ``source`` is the class of a plain one, else ``MODULE:REGISTRY``, imported when it is needed."""

    name: str
    title: str
    kind: Literal["plain", "chosen", "set"]
    source: type[Component] | str
    default: str = ""
    """The component that is chosen unless another is named."""
    help: str = ""
    """What a name means here."""
    affects_result: bool = True
    """Whether the choice of a name changes what is learned."""
    empty: str = ""
    """The member that an empty list stands for, where none at all means something else than no list."""

    @property
    def registry(self) -> Registry[Any]:
        """Of a chosen section or a set."""
        assert isinstance(self.source, str)
        module, _, name = self.source.partition(":")
        found: Registry[Any] = getattr(import_module(module), name)
        return found

    @property
    def component(self) -> type[Component]:
        """Of a plain section."""
        assert isinstance(self.source, type)
        return self.source


SECTIONS: tuple[Section, ...] = (
    Section("model", "Network", "plain", Model),
    Section(
        "dataset",
        "Data",
        "chosen",
        "ringlet.data.formats:DATASETS",
        "digits",
        "data set: see `ringlet datasets`; also folder:PATH, masks:PATH, npz:PATH",
    ),
    Section(
        "augmentation",
        "Augmentation",
        "set",
        "ringlet.data.augmentation:AUGMENTATIONS",
        help="random changes of training images, comma-separated",
    ),
    Section("transfer", "Transfer learning", "plain", Transfer),
    Section("training", "Training", "plain", Training),
    Section("loss", "Loss", "chosen", "ringlet.losses:LOSSES", "auto", "what is minimised"),
    Section(
        "metrics",
        "Metrics",
        "set",
        "ringlet.metrics:METRICS",
        help="what is reported beside the loss, comma-separated; default: usual for the task",
        empty="none",
    ),
    Section("optimizer", "Optimizer", "chosen", "ringlet.optim.base:OPTIMIZERS", "adam", "optimizer"),
    Section(
        "schedule",
        "Schedules and stopping",
        "set",
        "ringlet.optim.schedules.base:SCHEDULES",
        help="learning-rate schedules and reasons to stop, comma-separated",
    ),
    Section(
        "strategy",
        "Synchronization strategy",
        "chosen",
        "ringlet.strategies.contract:STRATEGIES",
        "sync",
        "how workers agree",
    ),
    Section("workers", "Workers", "plain", Workers),
    Section(
        "engine",
        "Engine",
        "chosen",
        "ringlet.engines.engine:ENGINES",
        "native",
        "what computes",
        affects_result=False,
    ),
    Section("checkpoint", "Checkpoints", "plain", Checkpoint),
    Section("guards", "Guards", "plain", Guards),
    Section(
        "trackers",
        "Trackers",
        "set",
        "ringlet.trackers.registry:TRACKERS",
        help="tools to write metrics to as well, comma-separated, such as tensorboard or mlflow:URI",
        affects_result=False,
    ),
    Section("output", "Output", "plain", Output),
)
BY_NAME = {section.name: section for section in SECTIONS}


@dataclass(frozen=True)
class Interval:
    """Every ``count`` steps or epochs; ``never`` has no count; ``auto``: after epochs, but not too often."""

    count: int
    unit: Literal["steps", "epochs", "auto", "never"]

    @classmethod
    def parse(cls, text: str) -> Interval:
        """``100 steps``, ``100`` (steps), ``2 epochs``, ``epoch``, ``auto`` or ``never``."""
        if text.strip().lower() in ("never", "0"):
            return cls(0, "never")
        if text.strip().lower() == "auto":
            return cls(1, "auto")
        match = re.fullmatch(r"\s*(\d{1,12})?\s*(steps?|epochs?)?\s*", text.lower())
        count = int(match[1] or 1) if match and (match[1] or match[2]) else 0
        if match is None or count < 1:
            raise ConfigError(f"expected such as '100 steps', '2 epochs', auto or never, received '{text}'")
        return cls(count, "epochs" if (match[2] or "").startswith("epoch") else "steps")


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint: the newest good one, or that of a step or of the end of an epoch."""

    step: int | None = None
    epoch: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> ResumePoint | None:
        """``auto``, ``120`` or ``step:120``, ``epoch:3``; None stays None."""
        if text is None:
            return None
        match = re.fullmatch(r"(?:(step|epoch):)?(\d{1,12})", text.strip().lower())
        if text.strip().lower() == "auto":
            return cls()
        if match is None:
            raise ConfigError(f"expected auto, a number of steps such as 120, or epoch:3, received '{text}'")
        number = int(match[2])
        return cls(epoch=number) if match[1] == "epoch" else cls(step=number)

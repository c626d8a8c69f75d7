"""RunConfig: all options of a run, validated together, and its way to TOML."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ringlet.config import options
from ringlet.config.explain import explain
from ringlet.config.forms import bare
from ringlet.config.intervals import Interval, ResumePoint
from ringlet.config.strategy_choice import StrategyChoice
from ringlet.errors import ConfigError


class RunConfig(
    options.NetworkOptions,
    options.DataOptions,
    options.TrainingOptions,
    options.OptimizerOptions,
    options.ScheduleOptions,
    options.WorkerOptions,
    options.ReliabilityOptions,
    options.MachineOptions,
    options.OutputOptions,
    options.CompatibilityOptions,
):
    """One validated description of a run; immutable. Wrong values raise :class:`ConfigError`, one line per problem.

    ``origins`` says where each value came from (``--learning-rate``, ``RINGLET_SEED``, ``run.toml, line 3: seed``), for
    messages.
    """

    def __init__(self, origins: Mapping[str, str] | None = None, **values: Any) -> None:
        values, places = _with_own_names(values, dict(origins or {}))
        try:
            super().__init__(**_implied(values))
        except ValidationError as error:
            raise ConfigError(explain(error.errors(), RunConfig, places)) from None
        problems = [*_contradictions(self), *_impossible_shapes(self), *_unreadable(self)]
        if problems:
            raise ConfigError("\n".join(problems))

    @classmethod
    def names(cls) -> list[str]:
        """All option names in the order of their sections."""
        return [name for section in options.SECTIONS for name in section.model_fields]

    def replace(self, **changes: Any) -> RunConfig:
        """A validated copy with some values changed."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return RunConfig(**{**values, **changes})

    def to_dict(self) -> dict[str, Any]:
        """All values in the order of the sections; what is not set (None) is left out, as TOML has no null."""
        values = {name: getattr(self, name) for name in self.names()}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    def to_toml(self) -> str:
        """The configuration as TOML text; reading it back gives an equal configuration."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    def num_shards(self, num_workers: int) -> int:
        """Into how many shards a step is cut: given, or one for every pass of every worker."""
        if self.shards is None:
            return num_workers * self.accumulate
        if self.shards < num_workers:
            raise ConfigError(
                f"shards = {self.shards}, but {num_workers} workers: expected at least one shard for each worker. "
                "Start fewer workers or give more shards"
            )
        return self.shards

    def samples_per_step(self, num_workers: int = 1, default_local: int = options.DEFAULT_LOCAL_BATCH_SIZE) -> int:
        """The global batch size: given, or the local one (else ``default_local``) for every shard."""
        num_shards, local = self.num_shards(num_workers), self.local_batch_size
        if self.global_batch_size is None:
            return (local or default_local) * num_shards
        if local is not None and local * num_shards != self.global_batch_size:
            raise ConfigError(
                f"local_batch_size = {local} and global_batch_size = {self.global_batch_size} contradict each other "
                f"with {num_shards} {'shard' if num_shards == 1 else 'shards'}: give one of them"
            )
        return self.global_batch_size

    @property
    def squared_gradient_share(self) -> float | None:
        """``rho``, under either of its names."""
        return self.rho if self.rho is not None else self.decay_rate

    def notes(self) -> list[str]:
        """One line for each option that was set and has no effect here."""
        fields = type(self).model_fields
        chosen = (name for name in options.WITHOUT_EFFECT if getattr(self, name) != fields[name].default)
        return [f"{name}: {fields[name].description}" for name in chosen]


OTHER_NAMES = {"batch_size": "local_batch_size"}
"""Options under two names: the other one, and its own."""


def _with_own_names(values: dict[str, Any], origins: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values (and where they came from) under the options' own names."""
    values = dict(values)
    for other, own in OTHER_NAMES.items():
        if values.get(other) is not None and values.get(own) in (None, values[other]):
            values[own] = values.pop(other)
            origins[own] = origins.get(other, other)
    return values, origins


def _implied(values: dict[str, Any]) -> dict[str, Any]:
    """Values that follow from others, so that a written configuration reads back without contradiction."""
    implied: dict[str, Any] = {}
    if values.get("blocking_mpi") is True:
        implied["overlap"] = "off"
    if values.get("non_blocking_mpi") is True:
        implied["overlap"] = "on"
    if values.get("test_as_validation") is True:
        implied["validation_split"] = 0.0
    values = {name: tuple(value) if _is_list(name, value) else value for name, value in values.items()}
    return {**implied, **values, **_square(values.get("image_size"))}


def _is_list(name: str, value: Any) -> bool:
    """Whether a list was given where a tuple is meant."""
    field = RunConfig.model_fields.get(name)
    return isinstance(value, list) and field is not None and typing.get_origin(bare(field.annotation)) is tuple


def _square(size: Any) -> dict[str, Any]:
    """One number stands for height and width."""
    number = size[0] if isinstance(size, tuple) and len(size) == 1 else size
    return {"image_size": (number, number)} if isinstance(number, int) and not isinstance(number, bool) else {}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _contradictions(config: RunConfig) -> list[str]:
    """Options that exclude each other."""
    checks = [
        (
            config.device == "cuda" and config.engine == "native",
            "device = cuda and engine = native exclude each other: Ringlet's own kernels compute on the processor. "
            "Give engine = torch",
        ),
        (
            config.device != "auto" and config.engine == "keras",
            f"device = {config.device} and engine = keras exclude each other: the backend of Keras chooses its device "
            "itself. Leave device out; CUDA_VISIBLE_DEVICES= hides GPUs from it",
        ),
        (
            config.batch_size is not None,
            f"batch_size = {config.batch_size} and local_batch_size = {config.local_batch_size} are the same option "
            "and differ: give one of them",
        ),
        (
            config.shards is not None and config.accumulate > 1,
            f"shards = {config.shards} and accumulate = {config.accumulate} exclude each other: workers compute as "
            "many shards one after the other as they have",
        ),
        (
            config.shards is not None and config.compression != "none",
            f"compression = {config.compression} changes the bits with the number of machines, shards promise that "
            "they stay: give one of them",
        ),
        *_unfit_for_strategy(config),
        (
            config.blocking_mpi and config.non_blocking_mpi,
            "blocking_mpi and non_blocking_mpi exclude each other: give one of them",
        ),
        (
            config.blocking_mpi != config.non_blocking_mpi
            and config.overlap != ("off" if config.blocking_mpi else "on"),
            f"overlap = {config.overlap} contradicts {'non_' * config.non_blocking_mpi}blocking_mpi: give one of them",
        ),
        (
            config.rho is not None and config.decay_rate not in (None, config.rho),
            f"rho = {config.rho} and decay_rate (its older name) = {config.decay_rate} differ: give one of them",
        ),
        (
            config.nesterov and config.momentum == 0,
            "nesterov needs momentum: give momentum > 0 or leave nesterov out",
        ),
        (
            config.test_as_validation and bool(config.validation_split),
            f"test_as_validation and validation_split = {config.validation_split} exclude each other: give one of them",
        ),
        (
            config.clip_value is not None and config.clip_norm is not None,
            "clip_value and clip_norm exclude each other: give one of them",
        ),
        (
            len(set(config.lr_schedulers)) < len(config.lr_schedulers),
            f"lr_schedulers = {','.join(config.lr_schedulers)} names one twice: give each once",
        ),
    ]
    return [message for wrong, message in checks if wrong]


def _unfit_for_strategy(config: RunConfig) -> list[tuple[bool, str]]:
    """Options that only synchronous workers have."""
    apart = config.strategy.strip().lower() != "sync"
    return [
        (
            apart and config.shards is not None,
            f"strategy = {config.strategy} lets every worker go its own way, shards = {config.shards} promises the "
            "same bits on any number of them: give one of them, or accumulate for more passes per step",
        ),
        (
            apart and config.compression != "none",
            f"compression = {config.compression} is for gradients that workers exchange in every step, which strategy "
            f"= {config.strategy} does not do: give one of them",
        ),
        (
            apart and config.overlap == "on",
            f"overlap = on exchanges gradients during every backward pass, which strategy = {config.strategy} does not "
            "do: give one of them",
        ),
    ]


def _unreadable(config: RunConfig) -> list[str]:
    """Texts with a form of their own."""
    problems = []
    for parse in (
        lambda: Interval.parse(config.checkpoint_every),
        lambda: ResumePoint.parse(config.resume),
        lambda: StrategyChoice.parse(config.strategy),
    ):
        try:
            parse()
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _impossible_shapes(config: RunConfig) -> list[str]:
    """Shapes with a wrong number of entries or entries below one."""
    problems = []
    for name, lengths, meaning in (
        ("input_shape", (1, 3), "channels,height,width, such as 3,32,32"),
        ("image_size", (2,), "height,width or one number, such as 128"),
    ):
        shape = getattr(config, name)
        if shape is not None and (len(shape) not in lengths or min(shape) < 1):
            problems.append(f"{name} = {','.join(map(str, shape))}: expected {meaning}, all at least 1")
    return problems

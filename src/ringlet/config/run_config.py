"""RunConfig: one validated description of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, final

from ringlet.component import Component, OptionError, affects_result, plain
from ringlet.config.assembly import Assembly, Given
from ringlet.config.names import Path, locate, unknown_option
from ringlet.config.sections import (
    AUTO,
    BY_NAME,
    SECTIONS,
    Checkpoint,
    Guards,
    Model,
    Output,
    Training,
    Transfer,
    Workers,
)
from ringlet.errors import ConfigError, RingletError

if TYPE_CHECKING:
    from ringlet.data.augmentation import Change
    from ringlet.data.formats import DatasetFormat
    from ringlet.engines.engine import Engine
    from ringlet.losses import Loss
    from ringlet.metrics import Metric
    from ringlet.optim import Optimizer
    from ringlet.optim.schedules import Rule
    from ringlet.strategies.contract import StrategyConfig

DEFAULT_LOCAL_BATCH_SIZE = 64
DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS = 8
"""Images with masks are large, and every pixel is an example: a step of few of them is full of them."""


@final
class RunConfig:
    """One validated description of a run; immutable. Wrong values raise :class:`ConfigError`, one line per problem.

    Values are given by section (``optimizer={"name": "lars", "trust": 0.002}``), by path (``**{"optimizer.trust":
    0.002}``), as components (``optimizer=LARS(trust=0.002)``) or under flat names (``learning_rate=0.1``).
    ``origins`` says where each value came from (``--learning-rate``, ``RINGLET_SEED``, ``run.toml, line 3: seed``), for
    messages.
    """

    model: Model
    dataset: DatasetFormat
    augmentation: tuple[Change, ...]
    transfer: Transfer
    training: Training
    loss: Loss
    metrics: tuple[Metric, ...]
    optimizer: Optimizer
    schedule: tuple[Rule, ...]
    strategy: StrategyConfig
    workers: Workers
    engine: Engine
    checkpoint: Checkpoint
    guards: Guards
    trackers: tuple[Any, ...]
    output: Output

    def __init__(self, origins: Mapping[str, str] | None = None, **values: Any) -> None:
        places = origins or {}
        self._make([Given(name, value, places.get(name, name)) for name, value in values.items()])

    @classmethod
    def from_given(cls, given: Iterable[Given]) -> RunConfig:
        """The configuration that values from several sources make."""
        config = cls.__new__(cls)
        config._make(given)
        return config

    def _make(self, given: Iterable[Given]) -> None:
        self._given = tuple(given)
        assembly = Assembly(self._given)
        for section in SECTIONS:
            object.__setattr__(self, section.name, assembly.section(section))
        problems = assembly.problems or _contradictions(self)
        if problems:
            raise ConfigError("\n".join(dict.fromkeys(problems)))
        self._notes = tuple(dict.fromkeys(assembly.notes))
        self._places = assembly.places

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunConfig) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RunConfig({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

    def replace(self, **changes: Any) -> RunConfig:
        """A validated copy with some values changed; None unsets one."""
        last = max((given.source for given in self._given), default=0) + 1
        return RunConfig.from_given([*self._given, *(Given(name, v, name, last) for name, v in changes.items())])

    def to_dict(self) -> dict[str, Any]:
        """All values by section; what is not set (None) is left out, as TOML has no null."""
        found: dict[str, Any] = {}
        for section in SECTIONS:
            value = getattr(self, section.name)
            if section.kind == "set":
                found[section.name] = {
                    part.name: {name: item for name, item in part.table().items() if name != "name"} for part in value
                }
            else:
                found[section.name] = value.table()
        return found

    def flat(self) -> dict[str, Any]:
        """All values by their paths, such as ``optimizer.learning_rate``."""
        return dict(_flattened(self.to_dict()))

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults, by path."""
        default = RunConfig().flat()
        own = self.flat()
        chosen = {section.name for section in SECTIONS if section.kind == "chosen"}
        other = {name for name in chosen if own[f"{name}.name"] != default[f"{name}.name"]}
        for name in other:  # then the defaults are those of that component
            bare_component = type(getattr(self, name))
            default |= {
                f"{name}.{option}": plain(field.default)
                for option, field in bare_component.model_fields.items()
                if not field.is_required()
            }
        return {path: value for path, value in own.items() if path not in default or default[path] != value}

    def to_toml(self) -> str:
        """The configuration as TOML text; reading it back gives an equal configuration."""
        import tomli_w

        return tomli_w.dumps({name: table for name, table in self.to_dict().items() if table})

    def place(self, path: str) -> str | None:
        """Where the value at a path came from; None: it is the default or follows from others."""
        return self._places.get(tuple(path.split(".")))

    def get(self, name: str) -> Any:
        """The value of an option by any of its names, such as ``learning_rate``; None where it is not set."""
        alias = locate(name)
        if alias is None:
            raise ConfigError(unknown_option(name))
        if len(alias.path) == 1:
            value = getattr(self, alias.path[0])
            return [str(part) for part in value] if isinstance(value, tuple) else str(value)
        return self.flat().get(".".join(alias.path))

    def differences(self, before: RunConfig) -> dict[str, tuple[Any, Any]]:
        """Options that change what is learned and differ from those of ``before``: path, its value and ours."""
        old, new = before.flat(), self.flat()
        found = {}
        for path in dict.fromkeys([*old, *new]):
            one, other = (values.get(path, _usual(path)) for values in (old, new))
            if one != other and self._matters(tuple(path.split("."))):
                found[path] = (old.get(path), new.get(path))
        return found

    def decisive(self) -> dict[str, Any]:
        """The options that change what is learned, by path; all workers must have the same."""
        return {path: value for path, value in self.flat().items() if self._matters(tuple(path.split(".")))}

    def _matters(self, path: Path) -> bool:
        section = BY_NAME[path[0]]
        if section.kind == "plain":
            field = section.component.model_fields.get(path[1])
            return field is None or affects_result(field)
        if section.kind == "set" or path[1] == "name":
            return section.affects_result
        component: Component = getattr(self, section.name)
        field = type(component).model_fields.get(path[1])
        if field is None:  # of the component that the other configuration has chosen
            field = next(iter(section.registry.options().get(path[1], {}).values()), None)
        return field is None or affects_result(field)

    def num_shards(self, num_workers: int) -> int:
        """Into how many shards a step is cut: given, or one for every pass of every worker."""
        shards = self.workers.shards
        if shards is None:
            return num_workers * self.workers.accumulate
        if shards < num_workers:
            raise ConfigError(
                f"shards = {shards}, but {num_workers} workers: expected at least one shard for each worker. "
                "Start fewer workers or give more shards"
            )
        return shards

    def samples_per_step(self, num_workers: int = 1, default_local: int = DEFAULT_LOCAL_BATCH_SIZE) -> int:
        """The global batch size: given, or the local one (else ``default_local``) for every shard."""
        num_shards = self.num_shards(num_workers)
        local, whole = self.training.local_batch_size, self.training.global_batch_size
        if whole is None:
            return (local or default_local) * num_shards
        if local is not None and local * num_shards != whole:
            raise ConfigError(
                f"local_batch_size = {local} and global_batch_size = {whole} contradict each other "
                f"with {num_shards} {'shard' if num_shards == 1 else 'shards'}: give one of them"
            )
        return whole

    def check_network(self) -> None:
        """Refuse a network that the zoo does not have, or options that its family does not; nothing is computed."""
        from ringlet.models import zoo

        model = self.model
        if model.network == AUTO:  # it is known when the data are
            return
        place = self.place("model.name") or "model"
        try:
            zoo.describe(model.network)
        except RingletError as error:
            raise ConfigError(f"{place}: {error}") from None
        try:
            zoo.create(
                model.network,
                input_shape=model.input_shape,
                num_classes=model.num_classes,
                last_layer=model.last_layer,
                **model.options,
            )
        except OptionError as error:
            found = [f"{self._place_of_option(option) or place}: {text}" for option, text in error.problems]
            raise ConfigError("\n".join(found)) from None
        except RingletError as error:
            raise ConfigError(f"{self._place_of_option(getattr(error, 'name', '')) or place}: {error}") from None

    def _place_of_option(self, name: str) -> str | None:
        """Where an option of the network's family came from."""
        return self.place(f"model.{name}") or (self.place("model.options") if name in self.model.options else None)

    def notes(self) -> list[str]:
        """One line for each option that was set and has no effect here."""
        return list(self._notes)


def _usual(path: str) -> Any:
    """What an option means to a component that does not have it: its default."""
    section, _, option = path.partition(".")
    if BY_NAME[section].kind != "chosen":
        return None
    owners = BY_NAME[section].registry.options().get(option)
    return None if owners is None else plain(next(iter(owners.values())).default)


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and (not prefix or value):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _contradictions(config: RunConfig) -> list[str]:
    """Options of different sections that exclude each other."""
    shards, strategy = config.workers.shards, config.strategy
    compression = getattr(strategy, "compression", None)
    checks = [
        (
            shards is not None and compression is not None and compression.name != "none",
            f"compression = {compression} changes the bits with the number of machines, shards promise that they stay: "
            "give one of them",
        ),
        (
            shards is not None and not strategy.lockstep,
            f"strategy = {strategy} lets every worker go its own way, shards = {shards} promises the same bits on any "
            "number of them: give one of them, or accumulate for more passes per step",
        ),
    ]
    return [message for wrong, message in checks if wrong]

"""RunConfig: one validated description of a run, gathered from values under any of their names."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from pydantic.fields import FieldInfo

from ringlet.component import (
    Component,
    OptionError,
    affects_result,
    bare,
    choices,
    explain,
    guess,
    key,
    nearest,
    parse_text,
    plain,
    problem_of,
    shown,
)
from ringlet.config.aliases import ALIASES, WITHOUT_EFFECT, Alias
from ringlet.config.sections import BY_NAME, SECTIONS, Checkpoint, Guards, Model, Output, Section, Training, Workers
from ringlet.errors import ConfigError, RingletError

if TYPE_CHECKING:
    from ringlet.component import Registry
    from ringlet.data.augmentation import Transform
    from ringlet.data.formats import DatasetFormat
    from ringlet.engines.engine import Engine
    from ringlet.optim import Optimizer
    from ringlet.optim.schedules import Rule
    from ringlet.strategies.contract import StrategyConfig

DEFAULT_LOCAL_BATCH_SIZE = 64
DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS = 8
"""Images with masks are large, and every pixel is an example: a step of few of them is full of them."""

Path = tuple[str, ...]


class Given(NamedTuple):
    """A value that somebody has given: under which name, from where, and in which source (later ones win)."""

    name: str
    value: Any
    origin: str
    source: int = 0


@dataclass(frozen=True)
class _Placed:
    """A given value at its path."""

    path: Path
    value: Any
    given: Given
    is_flat: bool
    """Whether it came under a flat name, which does not say whose option it is."""


# -- names ------------------------------------------------------------------------------------------------------------
def locate(name: str) -> Alias | None:
    """Where the option called ``name`` stands: by its path, by one of its other names; None: nowhere."""
    name = name.replace("-", "_")
    path = tuple(name.split("."))
    if path[0] in BY_NAME and len(path) <= 3:
        return Alias(path)
    if name in ALIASES:
        return ALIASES[name]
    for section, prefix in (("optimizer", False), ("schedule", True)):
        registry = BY_NAME[section].registry
        for entry in registry.entries():
            for option in (*entry.model_fields, *entry.other_names):
                if prefix and name == f"{entry.name}_{option}":
                    return Alias((section, entry.name, option))
                if not prefix and name == option:
                    return Alias((section, option))
    return None


def flat_names() -> list[str]:
    """Every name of an option without a section: those of version 0.1 and of PyDTNN."""
    optimizers = BY_NAME["optimizer"].registry
    names = [name for entry in optimizers.entries() for name in (*entry.model_fields, *entry.other_names)]
    names += [f"{entry.name}_{name}" for entry in BY_NAME["schedule"].registry.entries() for name in entry.model_fields]
    sections = [section.name for section in SECTIONS if section.kind != "plain"]
    return list(dict.fromkeys(["model", *sections, *ALIASES, *names, *WITHOUT_EFFECT]))


def paths() -> dict[Path, FieldInfo | None]:
    """The path of every option of Ringlet's own components, with its field; a name that chooses has none."""
    found: dict[Path, FieldInfo | None] = {}
    for section in SECTIONS:
        if section.kind == "plain":
            renamed = {"network": "name"} if section.name == "model" else {}
            fields = section.component.model_fields
            found |= {(section.name, renamed.get(name, name)): field for name, field in fields.items()}
        elif section.kind == "chosen":
            found[section.name, "name"] = None
            options = section.registry.options()
            found |= {(section.name, name): next(iter(owners.values())) for name, owners in options.items()}
        else:
            for entry in section.registry.entries():
                found[section.name, entry.name] = None
                found |= {(section.name, entry.name, name): field for name, field in entry.model_fields.items()}
    return found


def annotation_of(path: Path) -> Any:
    """The type of an option's value; None where no component of Ringlet has it."""
    section = BY_NAME[path[0]]
    if section.kind == "plain":
        if path == ("model",) or path == ("model", "name"):
            return str
        field = section.component.model_fields.get(path[1]) if len(path) == 2 else None
        return None if field is None else field.annotation
    if section.kind == "chosen":
        if len(path) == 1 or path[1] == "name":
            return str
        owners = section.registry.options().get(path[1])
        if owners is None:
            return float if any(path[1] in entry.other_names for entry in section.registry.entries()) else None
        annotation = next(iter(owners.values())).annotation
        kind = bare(annotation)
        return str if isinstance(kind, type) and issubclass(kind, Component) else annotation
    if len(path) == 1:
        return tuple[str, ...]
    if len(path) == 2:
        return bool
    entry = next((entry for entry in section.registry.entries() if key(entry.name) == key(path[1])), None)
    field = None if entry is None else entry.model_fields.get(path[2])
    return None if field is None else field.annotation


def from_text(name: str, text: str) -> Any:
    """The value of the option ``name`` written as text; ValueError says what was expected."""
    if name in WITHOUT_EFFECT:
        return parse_text(WITHOUT_EFFECT[name][0], text)
    alias = locate(name)
    if alias is None:
        return text
    annotation = bool if alias.values is not None else annotation_of(alias.path)
    return guess(text) if annotation is None else parse_text(annotation, text)


def is_flag(name: str) -> bool:
    """Whether the option is on or off, so that naming it turns it on."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name][0] is bool
    alias = locate(name)
    return alias is not None and (alias.values is not None or bare(annotation_of(alias.path)) is bool)


def unknown_option(name: str, origin: str | None = None, more: Iterable[str] = ()) -> str:
    """The message for a name that is not an option, with the nearest one, also among ``more``."""
    near = nearest(name, [*more, *flat_names(), *(".".join(path) for path in paths())])
    hint = f" Did you mean '{near}'?" if near else " See `ringlet train --help` for the options."
    place = f" ({origin})" if origin and origin != name else ""
    return f"unknown option '{name}'{place}.{hint}"


# -- the configuration ------------------------------------------------------------------------------------------------
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
    augmentation: tuple[Transform, ...]
    training: Training
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
        assembly = _Assembly(self._given)
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
        place = self.place("model.name") or "model"
        try:
            zoo.describe(model.network)
        except RingletError as error:
            raise ConfigError(f"{place}: {error}") from None
        try:
            zoo.create(model.network, input_shape=model.input_shape, num_classes=model.num_classes, **model.options)
        except RingletError as error:
            given = next((self.place(f"model.{name}") for name in model.options), None) or self.place("model.options")
            raise ConfigError(f"{given or place}: {error}") from None

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


class _Assembly:
    """Given values on their way to components; collects what is wrong with them."""

    def __init__(self, given: Sequence[Given]) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.places: dict[Path, str] = {}
        self._placed: list[_Placed] = []
        for one in given:
            self._place(one)
        self._check_twins()

    # -- where values belong
    def _place(self, given: Given) -> None:
        name = given.name.replace("-", "_")
        if name in WITHOUT_EFFECT:
            self._without_effect(name, given)
            return
        alias = locate(name)
        if alias is None:
            self.problems.append(unknown_option(name, given.origin))
            return
        value, path = given.value, alias.path
        if alias.values is not None:
            if not isinstance(value, bool):
                self.problems.append(f"{given.origin}: expected true or false, received {shown(value)}")
                return
            if value not in alias.values:
                return
            value = alias.values[value]
        is_flat = "." not in name and name not in BY_NAME
        section = BY_NAME[path[0]]
        if len(path) == 1 and section.kind == "plain":
            if isinstance(value, str) and section.name == "model":
                self._placed.append(_Placed(("model", "name"), value, given, False))
            else:
                self._add_table(path, value, given)
        elif len(path) == 1 and section.kind == "chosen":
            self._add_choice(section, value, given)
        elif len(path) == 2 and section.kind == "set" and isinstance(value, Mapping):
            self._placed.append(_Placed(path, True, given, False))
            self._add_table(path, value, given)
        else:
            self._placed.append(_Placed(path, value, given, is_flat))

    def _add_table(self, path: Path, table: Any, given: Given) -> None:
        if isinstance(table, Component):
            table = {name: getattr(table, name) for name in table.model_fields_set}
        if not isinstance(table, Mapping):
            self.problems.append(f"{given.origin}: expected a table of options, received {shown(table)}")
            return
        for name, value in table.items():
            own = Given(name, value, _joined(given, name), given.source)
            self._placed.append(_Placed((*path, str(name).replace("-", "_")), value, own, False))

    def _add_choice(self, section: Section, value: Any, given: Given) -> None:
        path = (section.name,)
        if isinstance(value, Component):
            self._placed.append(_Placed(path, value, given, False))
        elif isinstance(value, str):
            try:
                name, options = section.registry.split(value)
            except RingletError as error:
                self.problems.append(f"{given.origin}: {error}")
                return
            self._placed.append(_Placed((*path, "name"), name, given, False))
            self._placed += [_Placed((*path, option), item, given, False) for option, item in options.items()]
        else:
            self._add_table(path, value, given)

    def _without_effect(self, name: str, given: Given) -> None:
        kind, default, reason = WITHOUT_EFFECT[name]
        if given.value is not None and not isinstance(given.value, kind):
            expected = "true or false" if kind is bool else "text"
            self.problems.append(f"{given.origin}: expected {expected}, received {shown(given.value)}")
        elif given.value != default:
            self.notes.append(f"{name}: {reason}")

    def _check_twins(self) -> None:
        """Two names of one option with different values in one source."""
        seen: dict[tuple[Path, int], _Placed] = {}
        for placed in self._placed:
            other = seen.setdefault((placed.path, placed.given.source), placed)
            same_name = other.given.name == placed.given.name
            if not same_name and other.value != placed.value and None not in (other.value, placed.value):
                one, two = (f"{p.given.name} = {_written(p.given.value)}" for p in (other, placed))
                self.problems.append(f"{one} and {two} contradict each other: give one of them")

    # -- sections
    def section(self, section: Section) -> Any:
        """The component, or the components, of a section; None where something is wrong."""
        own = [placed for placed in self._placed if placed.path[0] == section.name]
        if section.kind == "plain":
            values = {placed.path[1]: placed for placed in own if len(placed.path) == 2}
            for placed in own:
                if len(placed.path) == 3:
                    self.problems.append(unknown_option(".".join(placed.path), placed.given.origin))
            return self._create(section.component, {}, values, (section.name,))
        return self._chosen(section, own) if section.kind == "chosen" else self._set(section, own)

    def _chosen(self, section: Section, own: list[_Placed]) -> Any:
        whole = [placed for placed in own if len(placed.path) == 1 and placed.value is not None]
        names = [placed for placed in own if placed.path[1:] == ("name",) and placed.value is not None]
        if whole and (not names or names[-1].given.source <= whole[-1].given.source):
            given = {placed.path[1]: placed for placed in own if len(placed.path) == 2 and placed.path[1] != "name"}
            later = {name: p for name, p in given.items() if p.given.source > whole[-1].given.source}
            base: Component = whole[-1].value
            return self._changed(base, later, section)
        name = names[-1] if names else None
        try:
            found, defaults = section.registry.lookup(name.value if name else section.default)
        except RingletError as error:
            self.problems.append(f"{name.given.origin}: {error}" if name else str(error))
            return None
        if name is not None:
            self.places[section.name, "name"] = name.given.origin
        values: dict[str, _Placed] = {}
        for placed in self._still_meant(section, found, own, names):
            if len(placed.path) == 3:
                self.problems.append(unknown_option(".".join(placed.path), placed.given.origin))
            elif len(placed.path) == 2 and placed.path[1] != "name":
                if placed.path[1] in found.model_fields or placed.path[1] in found.other_names:
                    values[placed.path[1]] = placed
                else:
                    self._misfit(section, found, placed, name)
        return self._create(found, defaults, values, (section.name,))

    def _still_meant(
        self, section: Section, found: type[Component], own: list[_Placed], names: list[_Placed]
    ) -> list[_Placed]:
        """Values without those that an earlier source gave to another component of the section."""
        chosen = names[-1].given.source if names else 0
        before = [name for name in names if name.given.source < chosen]
        if not before or section.registry.find(before[-1].value) is found:
            return own
        kept = [placed for placed in own if placed.is_flat or placed.given.source >= chosen]
        if len(kept) < len(own) - len(before):
            self.notes.append(f"{section.name} = {found.name}: what was set for '{before[-1].value}' does not apply")
        return kept

    def _changed(self, base: Component, later: dict[str, _Placed], section: Section) -> Any:
        if not later:
            return base
        given = {name: getattr(base, name) for name in base.model_fields_set}
        return self._create(type(base), given, later, (section.name,))

    def _misfit(self, section: Section, found: type[Component], placed: _Placed, name: _Placed | None) -> None:
        """An option that the chosen component does not have: said if it came under a flat name or from a source that
        another name has overruled, refused otherwise."""
        option, value, origin = placed.path[1], placed.value, placed.given.origin
        owners = section.registry.options().get(option, {})
        if value is None or (
            owners and all(value in (field.default, plain(field.default)) for field in owners.values())
        ):
            return
        if not owners and not placed.is_flat:
            known = list(found.model_fields)
            error = {"type": "extra_forbidden", "loc": (option,), "input": value}
            self.problems.append(f"{origin}: {explain(error, found.title(), known)}")
            return
        problems = [problem_of(section.registry.find(owner), option, value) for owner in owners]
        if owners and all(problems):
            self.problems.append(f"{origin}: {problems[0]}")
            return
        overruled = name is not None and name.given.source > placed.given.source
        message = f"no effect, {found.title()} has no such option"
        if overruled or (placed.is_flat and (section.name == "optimizer" or value == "off")):
            self.notes.append(f"{placed.given.name}: {message}")
        else:
            self.problems.append(
                f"{origin}: {found.title()} has no option '{option}'; {section.name} = {' or '.join(owners)} has it"
            )

    def _set(self, section: Section, own: list[_Placed]) -> Any:
        if not own:
            return ()
        registry = section.registry
        members: dict[str, tuple[type[Component], Mapping[str, Any], dict[str, _Placed]]] = {}
        options: list[_Placed] = []
        for placed in own:
            try:
                if len(placed.path) == 1:
                    members = self._members(registry, placed)
                elif len(placed.path) == 2:
                    found, defaults = registry.lookup(placed.path[1])
                    if placed.value is False or placed.value is None:
                        members.pop(found.name, None)
                    elif placed.value is True:
                        members.setdefault(found.name, (found, defaults, {}))
                    else:
                        self.problems.append(f"{placed.given.origin}: expected true, false or a table of options")
                else:
                    found, defaults = registry.lookup(placed.path[1])
                    if not placed.is_flat:
                        members.setdefault(found.name, (found, defaults, {}))
                    options.append(placed)
            except RingletError as error:
                self.problems.append(f"{placed.given.origin}: {error}")
        for placed in options:
            found = registry.find(placed.path[1])
            if found.name in members:
                members[found.name][2][placed.path[2]] = placed
            elif placed.value is not None and placed.value != _default_of(found, placed.path[2]):
                self.notes.append(f"{placed.given.name}: no effect without {section.name} = {found.name}")
        return tuple(
            self._create(found, defaults, values, (section.name, found.name))
            for found, defaults, values in members.values()
        )

    def _members(
        self, registry: Registry[Any], placed: _Placed
    ) -> dict[str, tuple[type[Component], Mapping[str, Any], dict[str, _Placed]]]:
        """The members that one value names: a comma list, a list of texts, components or tables, a table of tables."""
        value = placed.value
        items: Sequence[Any] = value.split(",") if isinstance(value, str) else value if value is not None else ()
        members: dict[str, tuple[type[Component], Mapping[str, Any], dict[str, _Placed]]] = {}
        if isinstance(value, Mapping):
            items = [{"name": name, **(table if isinstance(table, Mapping) else {})} for name, table in value.items()]
        if not isinstance(items, Sequence):
            raise ConfigError(f"expected a list of names, received {shown(value)}")
        for item in items:
            if isinstance(item, Component):
                found, given = type(item), {name: getattr(item, name) for name in item.model_fields_set}
            elif isinstance(item, Mapping):
                table = dict(item)
                found, given = registry.lookup(str(table.pop("name", "")))[0], table
            elif isinstance(item, str) and item.strip():
                name, given = registry.split(item.strip())
                found = registry.find(name)
            elif item == "":
                continue
            else:
                raise ConfigError(f"expected a list of names, received {shown(value)}")
            if found.name in members:
                raise ConfigError(f"{registry.kind} '{found.name}' is named twice: give each once")
            members[found.name] = (found, given, {})
        return members

    def _create(
        self, found: type[Component], defaults: Mapping[str, Any], values: Mapping[str, _Placed], path: Path
    ) -> Any:
        given = {name: placed.value for name, placed in values.items() if placed.value is not None}
        for name, placed in values.items():
            if placed.value is not None:
                self.places[(*path, name)] = placed.given.origin
        try:
            return found(**{**defaults, **given})
        except OptionError as error:
            for option, text in error.problems:
                place = (
                    values[option].given.origin if option in values else ".".join((*path, option) if option else path)
                )
                is_plain = len(path) == 1 and BY_NAME[path[0]].kind == "plain"
                self.problems.append(
                    text if not option and is_plain else f"{place}: {text}{_elsewhere(found, values.get(option))}"
                )
        except RingletError as error:  # of a component within
            self.problems.append(str(error))
        return None


def _elsewhere(found: type[Component], placed: _Placed | None) -> str:
    """Which other component of the kind takes a value that this one refuses."""
    if placed is None or found.registry is None or not isinstance(placed.value, str):
        return ""
    owners = found.registry.options().get(placed.path[-1], {})
    others = [name for name, field in owners.items() if placed.value in choices(field.annotation)]
    return f" {found.registry.kind.capitalize()} {' or '.join(others)} takes it" if others else ""


def _default_of(found: type[Component], option: str) -> Any:
    field = found.model_fields.get(option)
    return None if field is None else field.default


def _joined(given: Given, name: str) -> str:
    return f"{given.origin}.{name}"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def typed(value: Any, name: str) -> Any:
    """A list where a tuple is meant, as TOML has only lists."""
    alias = locate(name)
    if isinstance(value, list) and alias is not None and typing.get_origin(bare(annotation_of(alias.path))) is tuple:
        return tuple(value)
    return value

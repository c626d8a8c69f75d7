"""From given values to components: values find their places, sections are made, and all that is wrong is collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ringlet.component import Component, OptionError, plain, problem_of
from ringlet.config.names import ALIASES, WITHOUT_EFFECT, Path, locate, unknown_option
from ringlet.config.sections import BY_NAME, Section
from ringlet.errors import ConfigError, RingletError
from ringlet.option_text import choices, explain, shown

if TYPE_CHECKING:
    from ringlet.component import Registry


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


class Assembly:
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
        if alias.split is not None:
            self._place_parts(alias.split, given)
            return
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

    def _place_parts(self, split: Callable[[Any], Mapping[str, Any]], given: Given) -> None:
        try:
            parts = split(given.value)
        except RingletError as error:
            self.problems.append(f"{given.origin}: {error}")
            return
        for name, value in parts.items():
            self._place(given._replace(name=name, value=value))

    def _add_table(self, path: Path, table: Any, given: Given) -> None:
        if isinstance(table, Component):
            table = {name: getattr(table, name) for name in table.model_fields_set}
        if not isinstance(table, Mapping):
            self.problems.append(f"{given.origin}: expected a table of options, received {shown(table)}")
            return
        for name, value in table.items():
            own = Given(name, value, _joined(given, name), given.source)
            moved = ".".join((*path, str(name).replace("-", "_")))
            if moved in ALIASES:
                self._place(own._replace(name=moved))
                continue
            self._placed.append(_Placed((*path, str(name).replace("-", "_")), value, own, False))

    def _add_choice(self, section: Section, value: Any, given: Given) -> None:
        path = (section.name,)
        if value is None or isinstance(value, Component):
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
        unset = max(
            (placed.given.source for placed in own if len(placed.path) == 1 and placed.value is None), default=0
        )
        own = [placed for placed in own if placed.given.source >= unset]
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
        for placed in sorted(own, key=lambda one: (one.given.source, len(one.path))):  # lists before what adds to them
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
        if section.empty and not members and any(placed.value in ((), []) for placed in own):
            members[section.empty] = (registry.find(section.empty), {}, {})
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
            if found.name in members and members[found.name][1] != given:
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

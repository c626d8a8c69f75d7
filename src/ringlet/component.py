"""Components: parts of a run that are chosen by name and own their options.

An optimizer, a strategy, an engine, a data format … is a class with a ``name`` and fields, each declared once by
:func:`option` with its default, range and help. From that declaration follow the command line and its help, shell
completion, TOML files and their schema, ``ringlet init``, messages about wrong values, the tables of the documentation,
and what a resumed run may change. A component is a frozen value; where it describes something that holds memory or
connections, its ``build`` method makes that thing.

A :class:`Registry` holds the components of one kind. It is filled by importing the modules of its package, where
defining a class enters it, and by entry points of other packages (:mod:`ringlet.plugins`).
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules
from threading import RLock
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ringlet import plugins
from ringlet.errors import ConfigError, UnknownNameError
from ringlet.option_text import bare, explain, parse_text


def option(default: Any, help_text: str, *, unit: str = "", affects_result: bool = True, **limits: Any) -> Any:
    """A field of a component: its default, its meaning in one phrase, and its limits (``ge``, ``gt``, ``le``, ``lt``,
    ``min_length``).

    ``unit`` is that of a number: epochs, steps, pixels, seconds. ``affects_result``: whether the value changes what is
    learned. A resumed run may change the others.
    """
    about: dict[str, Any] = ({"unit": unit} if unit else {}) | ({} if affects_result else {"affects_result": False})
    return Field(default=default, description=help_text, json_schema_extra=about or None, **limits)


def required(help_text: str, *, unit: str = "", **limits: Any) -> Any:
    """A field without a default."""
    return option(..., help_text, unit=unit, **limits)


def unit_of(field: FieldInfo) -> str:
    """The unit of a number; empty without one."""
    return str(field.json_schema_extra.get("unit", "")) if isinstance(field.json_schema_extra, dict) else ""


def affects_result(field: FieldInfo) -> bool:
    """Whether the value of ``field`` changes what is learned."""
    return not (isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("affects_result") is False)


class Problem(NamedTuple):
    """What is wrong with one option; ``text`` reads well after "learning_rate: "."""

    option: str
    text: str


class OptionError(ConfigError):
    """Options of a component that are unknown, missing, of the wrong type or out of range; one line each."""

    def __init__(self, owner: str, problems: Sequence[Problem]) -> None:
        lines = [f"{owner}: {option}: {text}" if option else f"{owner}: {text}" for option, text in problems]
        super().__init__("\n".join(dict.fromkeys(lines)))
        self.owner, self.problems = owner, tuple(problems)


class Component(BaseModel):
    """A frozen, checked value: nothing unknown, nothing converted silently, nothing infinite.

    A subclass with a ``name`` of its own is entered in the ``registry`` of its kind.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )
    registry: ClassVar[Registry[Any] | None] = None
    name: ClassVar[str] = ""
    argument: ClassVar[str] = ""
    """The option that a text after the colon sets, as 10 in ``average:10``; none without one."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Other names of this component, with the defaults that they stand for."""
    is_listed: ClassVar[bool] = True
    """Whether lists name it; what programs alone use is not listed."""
    other_names: ClassVar[tuple[str, ...]] = ()
    """What :meth:`prepare` understands besides the fields."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Enter the class, if it has a name of its own."""
        if cls.registry is not None and cls.__dict__.get("name"):
            cls.registry.register(cls)

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        try:
            super().__init__(**{name: cls.converted(name, value) for name, value in cls.prepare(values).items()})
        except ValidationError as error:
            raise OptionError(cls.title(), [cls._problem(entry) for entry in error.errors()]) from None
        if problems := list(self.contradictions()):
            raise OptionError(cls.title(), problems)

    @classmethod
    def title(cls) -> str:
        """How messages call it: ``optimizer 'sgd'``."""
        return cls.__name__ if cls.registry is None else f"{cls.registry.kind} '{cls.name}'"

    @classmethod
    def summary(cls) -> str:
        """The first sentence of its docstring."""
        first = (cls.__doc__ or "").strip().split("\n\n")[0]
        return " ".join(first.split()).replace("``", "").rstrip(":").removesuffix(".")

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Values under the names of the fields; a component with other spellings replaces this."""
        return values

    def contradictions(self) -> Iterable[Problem]:
        """What is wrong with valid values taken together."""
        return ()

    @classmethod
    def converted(cls, name: str, value: Any) -> Any:
        """A list where a tuple is meant, and the text of a component, as what they stand for."""
        field = cls.model_fields.get(name)
        if field is None:
            return value
        kind = bare(field.annotation)
        if isinstance(value, list) and typing.get_origin(kind) is tuple:
            return tuple(value)
        if isinstance(kind, type) and issubclass(kind, Component) and kind.registry is not None:
            return kind.registry.made(value)
        return value

    def replace(self, **changes: Any) -> Self:
        """A checked copy with some values changed."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})

    def values(self) -> dict[str, Any]:
        """All options with their values, in order; components within by their short texts."""
        return {name: plain(getattr(self, name)) for name in type(self).model_fields}

    def table(self) -> dict[str, Any]:
        """The component as a table of TOML: its name and its options; what is not set is left out."""
        options = {name: value for name, value in self.values().items() if value is not None}
        return {"name": self.name, **options} if self.name else options

    def __str__(self) -> str:
        """The short text that names it: ``average:10``."""
        if not self.name:
            return repr(self)
        given = {name: value for name, value in self.values().items() if value != _default(type(self), name)}
        head = f":{given.pop(self.argument)}" if self.argument in given else ""
        return ",".join([self.name + head, *(_detail(name, value) for name, value in given.items())])

    @classmethod
    def _problem(cls, error: Mapping[str, Any]) -> Problem:
        name = str(error["loc"][0]) if error["loc"] else ""
        text = explain(error, cls.title(), list(cls.model_fields))
        return Problem(name, f"{text}: {forms(cls)}" if error["type"] == "missing" and name == cls.argument else text)


def problem_of(owner: type[Component], name: str, value: Any) -> str | None:
    """What is wrong with a value for one option of ``owner``, by itself."""
    field = owner.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    if isinstance(bare(kind), type) and issubclass(bare(kind), Component):
        owner.converted(name, value)
        return None
    try:
        TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(
            owner.converted(name, value)
        )
    except ValidationError as error:
        return explain({**error.errors()[0], "loc": (name,)}, owner.title(), list(owner.model_fields))
    return None


def plain(value: Any) -> Any:
    """A value as TOML and JSON know it."""
    if isinstance(value, Component):
        return str(value)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def _default(owner: type[Component], name: str) -> Any:
    return plain(owner.model_fields[name].default)


def _detail(name: str, value: Any) -> str:
    if value is True:
        return name
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


# -- registries -------------------------------------------------------------------------------------------------------
Kind = TypeVar("Kind")


class Registry(Generic[Kind]):
    """All components of one kind, by name; case, ``-`` and ``_`` make no difference.

    ``package`` is imported with its modules when a name is first asked for. Names that it does not have are looked for
    among the entry points of ``group``, since a search through all installed packages takes time.
    """

    def __init__(self, kind: str, *, package: str, group: plugins.Kind) -> None:
        self.kind, self._package, self._group = kind, package, group
        self._entries: dict[str, Any] = {}
        self._state: Literal["new", "loading", "loaded"] = "new"
        self._lock = RLock()

    def register(self, entry: Kind) -> Kind:
        """Enter a component under its ``name``; another one of that name is an error."""
        name: str = entry.name  # type: ignore[attr-defined]
        known = self._entries.get(key(name))
        if known is not None and _origin(known) != _origin(entry):
            raise ConfigError(f"{self.kind} '{name}' is defined twice, in {_origin(known)} and {_origin(entry)}")
        self._entries[key(name)] = entry
        return entry

    def names(self) -> list[str]:
        """The names of the components that are built in or were defined by this program, in order."""
        self._load()
        return [entry.name for entry in self.entries()]  # type: ignore[attr-defined]

    def all_names(self) -> list[str]:
        """Those, and what installed packages add."""
        return list(dict.fromkeys([*self.names(), *plugins.names(self._group)]))

    def entries(self) -> list[Kind]:
        """All components that are built in or were defined by this program."""
        self._load()
        return [entry for entry in self._entries.values() if getattr(entry, "is_listed", True)]

    def find(self, name: str) -> Kind:
        """The component called ``name``; an unknown name is an error with the nearest one."""
        return self.lookup(name)[0]

    def knows(self, name: str) -> bool:
        """Whether ``name`` is built in or was defined by this program; installed packages are not searched."""
        self._load()
        return key(name) in self._entries

    def create(self, name: str, **values: Any) -> Any:
        """A component by its name and options, for instance ``create("sgd", momentum=0.9)``."""
        found, defaults = self.lookup(name)
        return found(**{**defaults, **values})  # type: ignore[operator]

    def parse(self, text: str) -> Any:
        """A component by a short text: ``NAME``, ``NAME:ARGUMENT`` or ``NAME:ARGUMENT,option=value,flag``."""
        name, values = self.split(text)
        return self.create(name, **values)

    def split(self, text: str) -> tuple[str, dict[str, Any]]:
        """The name and the options of such a text."""
        name = re.split("[:,]", text, maxsplit=1)[0].strip()
        rest = text.strip()[len(name) :].strip()
        if not rest.startswith(":"):
            return name, self._details(name, text, rest.removeprefix(","))
        found: Any = self.find(name)
        rest = rest.removeprefix(":")
        if not getattr(found, "argument", ""):
            raise ConfigError(
                f"{self.kind} '{text}': {found.name} takes nothing after a colon. Expected {forms(found)}"
            )
        field = found.model_fields[found.argument]
        if bare(field.annotation) is str:  # a path may contain anything
            argument, more = rest.strip(), ""
        else:
            argument, _, more = rest.partition(",")
        if not argument.strip():
            raise ConfigError(f"{self.kind} '{text}' names no {found.argument}: expected {forms(found)}")
        try:
            value = parse_text(field.annotation, argument.strip())
        except ValueError as error:
            raise ConfigError(f"{self.kind} '{text}': expected {error} after the colon: {forms(found)}") from None
        return name, {found.argument: value, **self._details(name, text, more)}

    def made(self, value: Any) -> Any:
        """A component from a short text, from a table with its name, or as it is."""
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, Mapping):
            table = dict(value)
            name = table.pop("name", None)
            if not isinstance(name, str):
                raise ConfigError(f"{self.kind}: the table has no name. Expected one of {', '.join(self.all_names())}")
            return self.create(name, **table)
        return value

    def options(self) -> dict[str, dict[str, FieldInfo]]:
        """Every option that a component of this kind has: the components that have it, with their fields."""
        found: dict[str, dict[str, FieldInfo]] = {}
        for entry in self.entries():
            for name, field in getattr(entry, "model_fields", {}).items():
                found.setdefault(name, {})[entry.name] = field  # type: ignore[attr-defined]
        return found

    def _details(self, name: str, text: str, details: str) -> dict[str, Any]:
        fields = getattr(self.find(name), "model_fields", {}) if details else {}
        values: dict[str, Any] = {}
        for detail in filter(None, (part.strip() for part in details.split(","))):
            option_name, equals, value = detail.partition("=")
            field = fields.get(option_name.strip().replace("-", "_"))
            if field is None or option_name.strip().replace("-", "_") in values:
                raise ConfigError(
                    f"{self.kind} '{text}': '{detail}' is not understood. Expected {forms(self.find(name))}"
                )
            try:
                values[option_name.strip().replace("-", "_")] = parse_text(field.annotation, value if equals else "on")
            except ValueError as error:
                raise ConfigError(f"{self.kind} '{text}': {option_name}: expected {error}") from None
        return values

    def lookup(self, name: str) -> tuple[Kind, Mapping[str, Any]]:
        """The component called ``name``, and the options that this name stands for."""
        self._load()
        wanted = key(name)
        if wanted in self._entries:
            return self._entries[wanted], {}
        for entry in self._entries.values():
            for other, defaults in getattr(entry, "presets", {}).items():
                if key(other) == wanted:
                    return entry, defaults
        found = plugins.find(self._group, name)
        if found is None:
            raise UnknownNameError(self.kind, name, self.all_names())
        if key(getattr(found, "name", "")) == wanted and self._is_value_like_ours(found):
            return found, {}  # a class has registered itself when it was defined
        if self._entries.get(wanted) is not found:
            raise plugins.not_a(self._group, name, f"a {self.kind} called '{name}'")
        return self._entries[wanted], {}

    def _is_value_like_ours(self, found: Any) -> bool:
        """Whether the registry is one of values, such as networks, and this is another."""
        first = next(iter(self._entries.values()), None)
        return first is not None and not isinstance(first, type) and isinstance(found, type(first))

    def _load(self) -> None:
        if self._state == "loaded":
            return
        with self._lock:
            if self._state != "new":  # by another thread, or a module of the package asks while it is imported
                return
            self._state = "loading"
            try:
                self._import_modules()
            except BaseException:
                self._state = "new"
                raise
            self._state = "loaded"

    def _import_modules(self) -> None:
        package = import_module(self._package)
        names = [f"{self._package}.{module.name}" for module in iter_modules(getattr(package, "__path__", []))]
        for name in names:
            import_module(name)
        places = {name: place for place, name in enumerate(names)}  # some may have been imported before
        entries = sorted(self._entries.items(), key=lambda item: places.get(item[1].__module__, len(places)))
        self._entries = dict(entries)


def key(name: str) -> str:
    """A name as registries compare it."""
    return name.strip().lower().replace("-", "").replace("_", "")


def forms(entry: Any) -> str:
    """How a component is written as a short text: ``bmuf:EVERY[,block_momentum=NUMBER,classical]``."""
    fields = dict(entry.model_fields)
    argument = fields.pop(entry.argument, None)
    head: str = entry.name
    if argument is not None:
        head += f":{entry.argument.upper()}" if argument.is_required() else f"[:{entry.argument.upper()}]"
    details = [name if bare(field.annotation) is bool else f"{name}=…" for name, field in fields.items()]
    return head + (
        f"[,{','.join(details)}]" if details and (argument is None or bare(argument.annotation) is not str) else ""
    )


def _origin(entry: Any) -> str:
    return f"{getattr(entry, '__module__', type(entry).__module__)}.{getattr(entry, '__qualname__', entry.name)}"

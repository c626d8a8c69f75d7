"""All options explained, for people (help, ``ringlet init``) and for programs (a JSON schema): made from components."""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from ringlet.component import Component, plain, unit_of
from ringlet.config.names import ALIASES, WITHOUT_EFFECT, annotation_of, flat_names, locate, network_options
from ringlet.config.run_config import RunConfig
from ringlet.config.sections import BY_NAME, SECTIONS, Section
from ringlet.option_text import bare, choices

DIALECT = "https://json-schema.org/draft/2020-12/schema"
WIDTH = 100
HEADER = """\
Options of a run, for: ringlet train FILE

A line that begins with "# " explains. A line that begins with "#" and a name holds a default:
remove the "#" and change the value. What has no default is explained only: to set it, write a
line of that form. RINGLET_<OPTION> in the environment and options on the command line win over
this file."""
_FORMS = {int: "INT", float: "NUMBER", str: '"TEXT"', bool: "true|false"}
_METAVARS = {int: "INT", float: "NUMBER", str: "TEXT", bool: "true|false"}


class Row(NamedTuple):
    """One option: its path, what it takes, its default and its meaning; ``owners`` are the components that have it."""

    path: str
    metavar: str
    default: Any
    meaning: str
    owners: tuple[str, ...] = ()
    flat: str = ""
    """Its name without a section, if it has one."""


# -- rows -------------------------------------------------------------------------------------------------------------
def rows(section: Section) -> list[Row]:
    """Every option of a section; those of a chosen section with the components that have them."""
    name = section.name
    if section.kind == "plain":
        fields = section.component.model_fields
        renamed = {"network": "name"} if name == "model" else {}
        own = [_row(f"{name}.{renamed.get(option, option)}", field) for option, field in fields.items()]
        return own + (_rows_of_networks() if name == "model" else [])
    registry = section.registry
    if section.kind == "chosen":
        first = Row(f"{name}.name", "NAME", section.default, section.help, flat=name)
        every = len(registry.entries())
        return [
            first,
            *(
                _row(
                    f"{name}.{option}",
                    next(iter(owners.values())),
                    () if len(owners) == every else tuple(owners),
                    owners,
                )
                for option, owners in registry.options().items()
            ),
        ]
    found = []
    for entry in registry.entries():
        found.append(Row(f"{name}.{entry.name}", "", None, entry.summary(), flat=_flat_name(f"{name}.{entry.name}")))
        found += [_row(f"{name}.{entry.name}.{option}", field) for option, field in entry.model_fields.items()]
    return found


def _rows_of_networks() -> list[Row]:
    """The options of families of the zoo, each with the families that have it."""
    return [
        _row(f"model.{option}", next(iter(owners.values())), tuple(owners), owners)
        for option, owners in network_options().items()
    ]


def _row(
    path: str, field: FieldInfo, owners: tuple[str, ...] = (), fields: Mapping[str, FieldInfo] | None = None
) -> Row:
    default = None if field.is_required() else plain(field.default)
    takes, meaning = _takes(field), str(field.description)
    if fields is not None:  # of several components, which may differ
        if len({repr(plain(one.default)) for one in fields.values()}) > 1:
            default = None
        values = dict.fromkeys(value for one in fields.values() for value in choices(one.annotation))
        takes = "|".join(values) if values else takes
        if len({one.description for one in fields.values()}) > 1:
            meaning = "; ".join(f"{name}: {one.description}" for name, one in fields.items())
            owners = ()
    return Row(path, takes, default, meaning, owners, _flat_name(path))


def _flat_name(path: str) -> str:
    """The flat name of an option that is most like its path; none if it has none."""
    wanted = tuple(path.split("."))
    if wanted == ("model", "name"):
        return "model"
    found = [name for name, alias in ALIASES.items() if alias.path == wanted and alias.values is None]
    if not found and wanted[0] in ("optimizer", "schedule") and len(wanted) == (2 if wanted[0] == "optimizer" else 3):
        found = ["_".join(wanted[1:])]
    return "" if not found else min(found, key=lambda name: (name not in path, len(name)))


def _takes(field: FieldInfo) -> str:
    """What stands for the value: its unit, where it is a number that has one."""
    return (
        unit_of(field).upper()
        if unit_of(field) and bare(field.annotation) in (int, float)
        else metavar(field.annotation)
    )


def metavar(annotation: Any) -> str:
    """What stands for a value on the command line: ``INT``, ``N,N,…``, ``auto|on|off``."""
    kind = bare(annotation)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return "|".join(typing.get_args(kind))
    if origin is tuple:
        return "N,N,…" if typing.get_args(kind)[0] in (int, float) else "NAME,…"
    if isinstance(kind, type) and issubclass(kind, Component):
        return "NAME"
    return "NAME=VALUE,…" if origin is dict else _METAVARS.get(kind, "TEXT")


def option_values(name: str) -> tuple[str, ...]:
    """The values that an option has a fixed list of, or the names that a section knows; else none."""
    alias = locate(name)
    if alias is None:
        return ()
    section = BY_NAME[alias.path[0]]
    if section.kind != "plain" and (len(alias.path) == 1 or alias.path[1:] == ("name",)):
        return tuple(_completed(entry) for entry in section.registry.entries())
    annotation = annotation_of(alias.path)
    if section.kind == "chosen" and annotation is str and len(alias.path) == 2:
        field = next(iter(section.registry.options().get(alias.path[1], {}).values()), None)
        kind = None if field is None else bare(field.annotation)
        if isinstance(kind, type) and issubclass(kind, Component) and kind.registry is not None:
            return tuple(_completed(entry) for entry in kind.registry.entries())
    return choices(annotation)


def _completed(entry: Any) -> str:
    """A name, with a colon where something must follow."""
    argument = entry.model_fields.get(entry.argument)
    return f"{entry.name}:" if argument is not None and argument.is_required() else str(entry.name)


def option_names(section: str | None = None) -> list[str]:
    """Every name under which an option can be given on the command line: flat ones, or the paths of one section."""
    if section is None:
        return flat_names()
    return [row.path for row in rows(BY_NAME[section])] if section in BY_NAME else []


# -- help -------------------------------------------------------------------------------------------------------------
def help_text(topic: str, width: int = 100) -> str:
    """The options of one section, of ``all`` of them, or the ``aliases``; for ``ringlet train --help TOPIC``."""
    if topic == "aliases":
        return _help_of_aliases(width)
    chosen = SECTIONS if topic == "all" else (BY_NAME[topic],)
    return "\n\n".join(_help_of(section, width) for section in chosen)


TOPICS = (*(section.name for section in SECTIONS), "all", "aliases")


def _help_of(section: Section, width: int) -> str:
    lines = [f"{section.title}:"]
    if section.kind == "plain":
        lines += _table([(_flag(row), _meaning(row)) for row in rows(section)], width)
        return "\n".join(lines)
    registry = section.registry
    default = f" (default: {section.default})" if section.default else ""
    names = [(f"  {entry.name}", entry.summary()) for entry in registry.entries()]
    lines += _table(
        [(f"--{section.name} NAME{'' if section.default else ',…'}", f"{section.help}{default}"), *names], width
    )
    shown = [row for row in rows(section) if row.metavar and row.path != f"{section.name}.name"]
    if shown:
        lines += ["", *_table([(_flag(row), _meaning(row)) for row in shown], width)]
    return "\n".join(lines)


def _help_of_aliases(width: int) -> str:
    pairs = []
    for name in flat_names():
        alias = locate(name)
        if alias is not None and name not in BY_NAME:
            pairs.append((f"--{name.replace('_', '-')}", f"--{'.'.join(alias.path).replace('_', '-')}"))
    pairs += [(f"--{name.replace('_', '-')}", reason) for name, (_, _, reason) in WITHOUT_EFFECT.items()]
    return "\n".join(["Other names of options:", *_table(pairs, width)])


def _flag(row: Row) -> str:
    """``--optimizer.momentum NUMBER``."""
    flag = f"--{row.path.replace('_', '-')}"
    return flag if row.metavar == _METAVARS[bool] else f"{flag} {row.metavar}"


def _meaning(row: Row) -> str:
    owners = f" ({', '.join(row.owners)})" if row.owners else ""
    default = "" if row.default in (None, False, [], {}) else f" (default: {row.default})"
    return f"{row.meaning}{owners}{default}"


def _table(pairs: list[tuple[str, str]], width: int) -> list[str]:
    """Two columns; what is too long for the first stands on a line of its own."""
    edge = min(max((len(left) for left, _ in pairs), default=0), 34) + 4
    lines = []
    for left, right in pairs:
        wrapped = textwrap.wrap(right, max(width - edge, 20)) or [""]
        if len(left) > edge - 4:
            lines.append(f"  {left}")
            lines += [f"{'':{edge}}{part}" for part in wrapped]
        else:
            lines.append(f"  {left:{edge - 2}}{wrapped[0]}")
            lines += [f"{'':{edge}}{part}" for part in wrapped[1:]]
    return lines


# -- a file to fill in ------------------------------------------------------------------------------------------------
def template(config: RunConfig) -> str:
    """A commented TOML file of all options; what ``config`` changes is set, all else stands there as comments."""
    changed = config.changed()
    parts = [_comment(HEADER)]
    for section in SECTIONS:
        parts.append(f"\n# ---- {section.title} {'-' * max(WIDTH - len(section.title) - 8, 0)}")
        parts += _template_of(section, config, changed)
    return "\n".join(parts) + "\n"


def _template_of(section: Section, config: RunConfig, changed: Mapping[str, Any]) -> Iterator[str]:
    value = getattr(config, section.name)
    if section.kind == "set":
        yield _comment(_sentence(section.help))
        for entry in section.registry.entries():
            chosen = next((part for part in value if part.name == entry.name), None)
            mark = "" if chosen is not None else "#"
            yield f"\n{_comment(entry.summary())}\n{mark}[{section.name}.{entry.name}]"
            fields = entry.model_fields
            given = {} if chosen is None else chosen.values()
            yield from (_option(name, field, given.get(name)) for name, field in fields.items())
        return
    yield f"\n[{section.name}]"
    if section.kind == "chosen":
        names = ", ".join(section.registry.names())
        yield f"{_comment(_sentence(f'{section.help}: {names}'))}\n" + (
            _line("name", value.name) if f"{section.name}.name" in changed else f"#{_line('name', value.name)}"
        )
        yield _comment(
            f"The options below are those of {value.name}; ringlet train --help {section.name} has the others."
        )
    for name, field in type(value).model_fields.items():
        own = "name" if (section.name, name) == ("model", "network") else name
        if (section.name, name) == ("model", "options"):
            yield _comment("Options of the family stand here too, such as levels = 4: see `ringlet models show`")
            yield from (_line(option, plain(item)) for option, item in value.options.items())
            continue
        yield _option(own, field, changed.get(f"{section.name}.{own}"))


def _option(name: str, field: FieldInfo, given: Any) -> str:
    """What the option means, then its line."""
    meaning = _comment(_sentence(str(field.description)))
    if given is not None:
        return f"{meaning}\n{_line(name, given)}"
    if field.is_required() or field.default is None:
        return f"{meaning}\n#   {name} = {_form(field.annotation)}"
    return f"{meaning}\n#{_line(name, plain(field.default))}"


def _form(annotation: Any) -> str:
    """``INT``, ``"TEXT"``, ``[INT, …]``: what to write in a TOML file."""
    kind = bare(annotation)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(f'"{value}"' for value in parts)
    if origin is tuple:
        return f"[{_form(parts[0])}, …]"
    return "{ NAME = VALUE, … }" if origin is dict else _FORMS.get(kind, '"TEXT"')


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comment(text: str) -> str:
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH - 2) or [""]]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _line(name: str, value: Any) -> str:
    """``name = value`` on one line."""
    return f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    import tomli_w

    if isinstance(value, dict):
        return "{ " + ", ".join(_line(key, item) for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


# -- JSON schema ------------------------------------------------------------------------------------------------------
def json_schema() -> dict[str, Any]:
    """What a TOML file may say: one property for every section, and the flat names as deprecated ones.

    TOML has no null, a list may also be a text with commas, and an image size may be one number.
    """
    properties: dict[str, Any] = {section.name: _schema_of(section) for section in SECTIONS}
    for name in flat_names():
        if name not in properties:
            properties[name] = _schema_of_flat(name)
    about = {"$schema": DIALECT, "title": "Configuration of a run of Ringlet", "type": "object"}
    return {**about, "properties": properties, "additionalProperties": False}


def _schema_of(section: Section) -> dict[str, Any]:
    if section.kind == "plain":
        table = _schema_of_component(section.component, {"network": "name"} if section.name == "model" else {})
        if section.name != "model":
            return table | {"title": section.title}
        del table["properties"]["options"]
        values = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "array")]}
        return {"title": section.title, "anyOf": [{"type": "string"}, table | {"additionalProperties": values}]}
    names = section.registry.entries()
    if section.kind == "set":
        members = {entry.name: {"anyOf": [{"type": "boolean"}, _schema_of_component(entry)]} for entry in names}
        texts = {"type": "array", "items": {"type": "string"}}
        table = {"type": "object", "properties": members, "additionalProperties": {"type": ["object", "boolean"]}}
        return {"title": section.title, "anyOf": [{"type": "string"}, texts, table]}
    options: dict[str, Any] = {"name": {"type": "string", "examples": [entry.name for entry in names]}}
    for entry in names:
        for name, found in _schema_of_component(entry)["properties"].items():
            known = options.setdefault(name, found)
            if known != found:
                kinds = [*known.get("anyOf", [known])]
                options[name] = {"description": known.get("description", ""), "anyOf": [*kinds, found]}
    return {
        "title": section.title,
        "anyOf": [{"type": "string"}, {"type": "object", "properties": options, "additionalProperties": True}],
    }


def _schema_of_component(found: type[Component], renamed: Mapping[str, str] | None = None) -> dict[str, Any]:
    properties = {
        (renamed or {}).get(name, name): _schema_of_field(found, name, field)
        for name, field in found.model_fields.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema_of_field(owner: type[Component], name: str, field: FieldInfo) -> dict[str, Any]:
    kind = bare(field.annotation)
    about: dict[str, Any] = {"description": field.description} | ({"unit": unit_of(field)} if unit_of(field) else {})
    if not field.is_required() and field.default is not None:
        about["default"] = plain(field.default)
    if isinstance(kind, type) and issubclass(kind, Component):
        return about | {"anyOf": [{"type": "string"}, {"type": "object"}]}
    found = owner.model_json_schema()["properties"][name]
    kinds = [one for one in found.get("anyOf", [found]) if one.get("type") != "null"]
    kinds = [{key: value for key, value in one.items() if key not in _ABOUT} for one in kinds]
    if typing.get_origin(kind) is tuple:
        kinds.append({"type": "string"})
    if name == "image_size":
        kinds.append({"type": "integer", "minimum": 1})
    return about | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


_ABOUT = ("description", "default", "title", "affects_result", "unit")


def _schema_of_flat(name: str) -> dict[str, Any]:
    if name in WITHOUT_EFFECT:
        kind, _, reason = WITHOUT_EFFECT[name]
        return {"deprecated": True, "description": reason, "type": "boolean" if kind is bool else "string"}
    alias = locate(name)
    assert alias is not None
    about = {"deprecated": True, "description": f"the same as {'.'.join(alias.path)}"}
    if alias.values is not None:
        return about | {"type": "boolean"}
    section = BY_NAME[alias.path[0]]
    if section.kind == "set" and len(alias.path) < 3:
        return about | ({"type": "boolean"} if len(alias.path) == 2 else {"type": ["string", "array"]})
    if section.kind == "set":
        found = section.registry.find(alias.path[1])
        return _schema_of_field(found, alias.path[2], found.model_fields[alias.path[2]]) | about
    if section.kind == "plain":
        return _schema_of_field(section.component, alias.path[1], section.component.model_fields[alias.path[1]]) | about
    if len(alias.path) == 1:
        return about | {"type": "string"}
    owners = {entry.name: entry for entry in section.registry.entries() if alias.path[1] in entry.model_fields}
    if not owners:
        return about | {"type": "number"}
    kinds = [_schema_of_field(entry, alias.path[1], entry.model_fields[alias.path[1]]) for entry in owners.values()]
    bare_kinds = [{key: value for key, value in one.items() if key not in _ABOUT} for one in kinds]
    unique = [one for place, one in enumerate(bare_kinds) if one not in bare_kinds[:place]]
    return about | (unique[0] if len(unique) == 1 else {"anyOf": unique})

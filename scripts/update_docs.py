"""Tables and figures of the documentation, written from the code: ``python scripts/update_docs.py [--check]``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->`` in a page of ``docs/`` or the README; all else is
left alone. What benchmarks measured stands between ``<!-- benchmark: NAME -->`` and ``<!-- end -->`` or, within a
sentence, in ``<!-- figure: … -->``: see ``figures.py``. With ``--check`` nothing is written, and a table that no longer
tells the truth is an error; so is a number that looks measured and was typed.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from figures import allowed_figures, benchmark_table, typed_figures, with_figures
from pydantic_core import PydanticUndefined

from ringlet import errors, optim
from ringlet.cli.examples import lines_of
from ringlet.cli.main import VERBS
from ringlet.component import plain, unit_of
from ringlet.config import describe
from ringlet.config.sections import SECTIONS
from ringlet.data.catalogue import catalogue
from ringlet.losses import LOSSES
from ringlet.metrics import METRICS
from ringlet.models import zoo
from ringlet.training import events

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PIN = re.compile(r"^([\w-]+)==(\S+)$", re.MULTILINE)
LEAST = re.compile(r"([\w-]+)(?:\[\w+\])?>=(\S+)")
BLOCK = re.compile(r"(<!-- (table|benchmark): ([^\n]+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Rewrite or check every page."""
    checks = "--check" in sys.argv[1:]
    stale, typed, allowed = [], [], allowed_figures()
    pages = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(lambda match: f"{match[1]}{_content(match[2], match[3])}{match[4]}", text)
        fresh = with_figures(fresh)
        if fresh != text:
            stale.append(page.name)
            if not checks:
                page.write_text(fresh, encoding="utf-8")
        typed += typed_figures(str(page.relative_to(ROOT)), fresh, allowed)
    known = {str(page.relative_to(ROOT)) for page in pages}
    typed += [
        f"allowed_figures.toml: there is no page {entry['page']}" for entry in allowed if entry["page"] not in known
    ]
    if stale and checks:
        sys.exit(f"tables in docs/ are not those of the code and the results ({', '.join(stale)}): run `make docs`")
    if typed:
        sys.exit(
            "figures that were typed; take them from a benchmark (<!-- figure: … -->) or, if they are not measured, "
            "add them to scripts/allowed_figures.toml:\n" + "\n".join(typed)
        )


def _content(kind: str, request: str) -> str:
    return TABLES[request]() if kind == "table" else benchmark_table(request)


def zoo_table() -> str:
    """Every network with its size at its default shape."""
    rows = []
    for name in zoo.names():
        member, spec = zoo.describe(name), zoo.create(name)
        shape = "x".join(map(str, spec.input_shape))
        options = ", ".join(
            f"{option}={_value(value) or 'default'}" for option, value in member.options.values().items()
        )
        mflop = f"{spec.forward_flops / 1e6:,.1f}"
        rows.append(
            (f"`{name}`", f"{spec.num_parameters:,}", shape, member.num_classes, mflop, options, member.summary)
        )
    return _table(("name", "parameters", "input", "classes", "MFLOP forward", "options", "what it is"), rows)


def options_table() -> str:
    """Every option of a run, by section."""
    parts = []
    for section in SECTIONS:
        lines = [f"\n### {section.title}\n"]
        if section.kind != "plain":
            names = [(f"`{entry.name}`", entry.summary()) for entry in section.registry.entries()]
            lines.append(f"\n`--{section.name}`: {section.help}.\n\n{_table(('name', 'what it is'), names)}")
        rows = [
            (_flag(row.path), _flag(row.flat), _value(row.default), _meaning(row))
            for row in describe.rows(section)
            if row.metavar and not (section.kind == "chosen" and row.path.endswith(".name"))
        ]
        if rows:
            lines.append(f"\n{_table(('option', 'also', 'default', 'meaning'), rows)}")
        parts.append("".join(lines))
    return "".join(parts) + "\n"


def _flag(path: str) -> str:
    return f"`--{path.replace('_', '-')}`" if path else ""


def _meaning(row: describe.Row) -> str:
    return f"{row.meaning} ({', '.join(row.owners)})" if row.owners else row.meaning


def optimizers_table() -> str:
    """Every optimizer with its hyper-parameters."""
    rows = []
    for optimizer in optim.OPTIMIZERS.entries():
        values = ", ".join(f"{option}={_value(value)}" for option, value in optimizer().values().items())
        rows.append((f"`{optimizer.name}`", values))
    return _table(("optimizer", "hyper-parameters and defaults"), rows)


def losses_table() -> str:
    """Every loss with its options."""
    return _components_table("loss", LOSSES.entries())


def metrics_table() -> str:
    """Every metric with its options and the tasks that it is for."""
    return _components_table("metric", METRICS.entries())


def _components_table(kind: str, entries: Iterable[Any]) -> str:
    rows = []
    for entry in entries:
        others = ", ".join(f"`{name}`" for name in entry.presets)
        options = ", ".join(f"{option}={_value(value) or 'none'}" for option, value in entry().values().items())
        rows.append((f"`{entry.name}`", others, options, ", ".join(entry.tasks), entry.summary()))
    return _table((kind, "also", "options", "for", "what it is"), rows)


def datasets_table() -> str:
    """Every data set of the catalogue."""
    rows = []
    for entry in catalogue():
        shape = "any" if entry.shape is None else "x".join(map(str, entry.shape))
        size = f", {entry.num_bytes / 1e6:,.0f} MB" if entry.num_bytes else ""
        rows.append((f"`{entry.name}`", entry.task, shape, f"{entry.origin}{size}", entry.licence, entry.description))
    return _table(("name", "task", "shape", "where from", "licence", "what it is"), rows)


def versions_table() -> str:
    """Every optional library: what an extra asks for, and what the tests run with."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pins = dict(PIN.findall((ROOT / "constraints.txt").read_text(encoding="utf-8")))
    found: dict[str, list[str]] = {}
    for extra, requirements in extras.items():
        for name, least in (LEAST.fullmatch(requirement).groups() for requirement in requirements):  # type: ignore[union-attr]
            if name in pins:
                found.setdefault(name, [least, ""])[1] += f" `{extra}`"
    return _table(
        ("library", "at least", "tested with", "extra"),
        [(name, least, pins[name].removesuffix(".*"), where.strip()) for name, (least, where) in sorted(found.items())],
    )


def examples_table() -> str:
    """The examples of every verb."""
    verbs = (import_module(f"ringlet.cli.{verb}") for verb in VERBS)
    parts = ("\n".join(lines_of(verb.EXAMPLES)) for verb in verbs)
    return "```\n" + "\n\n".join(parts) + "\n```\n"


def schema_table() -> str:
    """Every entry of a configuration file with its type, default and limits, from the JSON schemas of components."""
    parts = []
    for section in SECTIONS:
        if section.kind == "plain":
            found = [(f"`[{section.name}]`", section.component)]
        elif section.kind == "chosen":
            found = [
                (f'`[{section.name}]` with `name = "{entry.name}"`', entry) for entry in section.registry.entries()
            ]
        else:
            found = [(f"`[{section.name}.{entry.name}]`", entry) for entry in section.registry.entries()]
        common = set.intersection(*(set(entry.model_fields) for _, entry in found)) if len(found) > 1 else set()
        common = common if section.name == "dataset" else set()
        for place, (title, entry) in enumerate(found):
            if common and place and set(entry.model_fields) == common:
                continue  # the options of all data sets stand with the first
            title = "`[dataset]`, whatever its name" if common and not place else title
            parts.append(f"\n{title}\n\n{_table(('name', 'type', 'default', 'limits'), _entries(entry))}")
    return "".join(parts) + "\n"


def _entries(component: Any) -> list[tuple[str, str, str, str]]:
    rows = []
    for name, entry in component.model_json_schema()["properties"].items() if component.model_fields else ():
        own = "name" if (component.__name__, name) == ("Model", "network") else name
        choices = [choice for choice in entry.get("anyOf", [entry]) if choice.get("type") != "null"]
        kind = " or ".join(dict.fromkeys(_kind(choice) for choice in choices))
        limits = "; ".join(filter(None, (_limits(choice) for choice in choices)))
        default, unit = component.model_fields[name].default, unit_of(component.model_fields[name])
        kind += f" ({unit})" if unit else ""
        rows.append((f"`{own}`", kind, "" if default is PydanticUndefined else _value(plain(default)), limits))
    return rows


def events_table() -> str:
    """Every kind of record of ``events.ndjson``."""
    rows = []
    for event in get_args(events.Event):
        names = ", ".join(f"`{field.name}`" for field in fields(event) if field.name != "running")
        meaning = " ".join((event.__doc__ or "").split()).replace("``", "`")
        meaning = re.sub(r":\w+:`([^`]+)`", r"`\1`", meaning)
        rows.append((f"`{re.sub(r'(?<!^)(?=[A-Z])', '_', event.__name__).lower()}`", meaning, names))
    return _table(("event", "meaning", "fields"), rows)


def errors_table() -> str:
    """Every exception that a user can mend, with the exit code of a program that ends by it."""
    found = [error for error in vars(errors).values() if isinstance(error, type)]
    rows = [
        (f"`{error.__name__}`", error.exit_code, " ".join((error.__doc__ or "").split()))
        for error in found
        if issubclass(error, errors.RingletError)
    ]
    return _table(("exception of `ringlet.errors`", "exit code", "meaning"), sorted(rows, key=lambda row: row[1]))


def benchmarks_table() -> str:
    """Every part of ``python -m benchmarks``: what it measures, and how long it may take."""
    sys.path.insert(0, str(ROOT))
    parts = import_module("benchmarks.__main__").PARTS
    rows = []
    for name, part in parts.items():
        module = ast.parse((ROOT / "benchmarks" / f"{name.partition('.')[0]}.py").read_text(encoding="utf-8"))
        summary = (ast.get_docstring(module) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
        rows.append((f"`{name}`", summary, f"`python -m benchmarks.{part.words}`", f"{part.minutes:g}"))
    return _table(("part", "what it measures", "command", "at most, minutes"), rows)


TABLES: dict[str, Callable[[], str]] = {
    "benchmarks": benchmarks_table,
    "zoo": zoo_table,
    "options": options_table,
    "optimizers": optimizers_table,
    "datasets": datasets_table,
    "losses": losses_table,
    "metrics": metrics_table,
    "versions": versions_table,
    "examples": examples_table,
    "schema": schema_table,
    "events": events_table,
    "errors": errors_table,
}


def _kind(choice: Mapping[str, Any]) -> str:
    """What a value of a JSON schema is, in TOML's words."""
    if values := choice.get("enum"):
        return " or ".join(f"`{value}`" for value in values)
    if choice.get("type") == "array":
        return f"list of {_kind(choice.get('items', {}))}"
    names = {"string": "text", "number": "number", "integer": "integer", "boolean": "true or false", "object": "table"}
    return names.get(str(choice.get("type")), "any")


def _limits(choice: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {choice[name]:,}" for name, sign in signs.items() if name in choice]
    return ", ".join(found + (["not empty"] if choice.get("minLength") else []))


def _value(value: object) -> str:
    if value is None or value in ((), {}, []):
        return ""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


if __name__ == "__main__":
    main()

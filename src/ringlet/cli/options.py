"""The options of ``ringlet train``, made from the sections of the configuration: one list, no copies."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ringlet.cli import known
from ringlet.config.forms import bare
from ringlet.config.options import SECTIONS
from ringlet.errors import UsageError

_METAVARS = {int: "INT", float: "NUMBER", str: "TEXT"}
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def with_run_options(
    function: Callable[..., Any], offers: Callable[[str], bool] = lambda _: True
) -> Callable[..., Any]:
    """Give ``function(…, **values)`` a command-line option for every option of a run; those not given are None.

    ``offers`` says by name which options it takes, if not all.
    """
    own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "values"]
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    for section in SECTIONS:
        panel = (section.__doc__ or "").strip()
        offered = {name: field for name, field in section.model_fields.items() if offers(name)}
        parameters += [_parameter(name, field, panel) for name, field in offered.items()]

    def command(**values: Any) -> Any:
        return function(**values)

    paragraphs = (function.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def one_file(file: Path | None, config: Path | None) -> Path | None:
    """The configuration file, given by its name alone or by ``--config``."""
    if file is not None and config is not None and file != config:
        raise UsageError(f"two configuration files, '{file}' and '{config}': give one of them")
    if file is not None and not file.exists() and not file.suffix:
        raise UsageError(f"configuration file '{file}' does not exist. Options begin with --, such as --model {file}")
    return config if file is None else file


def _parameter(name: str, field: Any, panel: str) -> inspect.Parameter:
    annotation = bare(field.annotation)
    flag = f"--{name.replace('_', '-')}"
    default = field.default if field.default not in (None, False, (), {}) else None
    settings: dict[str, Any] = {
        "help": field.description if default is None else f"{field.description} (default: {default})",
        "rich_help_panel": panel,
        "show_default": False,
    }
    if annotation is bool:
        kind: Any = bool | None
        declarations = (f"{flag}/--no-{flag[2:]}",)
    else:
        kind = str | None
        declarations = (flag,)
        settings["metavar"] = _metavar(annotation)
        settings["autocompletion"] = known.of_run_option(name, annotation)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, typer.Option(*declarations, **settings)],
    )


def _metavar(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return "|".join(typing.get_args(annotation))
    if origin is tuple:
        return "N,N,…" if typing.get_args(annotation)[0] in (int, float) else "NAME,…"
    return "NAME=VALUE,…" if origin is dict else _METAVARS.get(annotation, "TEXT")


class RunCommand(TyperCommand):
    """Shows its options by section, in plain text (the boxed form of the parser takes twice as long).

    Also understands ``--evaluate=true`` and ``--evaluate=false``, as older command lines write them.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The list for ``--help``: general options first, then the sections of the configuration."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or "General", []).append(record)
        for title in sorted(sections, key=lambda title: title != "General"):
            with formatter.section(title):
                formatter.write_dl(sections[title])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite such flags, then parse as usual."""
        flags = {option for parameter in self.params for option in parameter.opts if parameter.secondary_opts}
        for parameter in self.params:
            _check_only_if_given(parameter)
        return super().parse_args(ctx, [_plain_flag(argument, flags) for argument in args])


def _check_only_if_given(parameter: Any) -> None:
    """The parser would make a validator for each of more than a hundred options, and hand it None for most of them."""
    if parameter.default is None and parameter.callback is None and not parameter.required:
        process = parameter.process_value
        parameter.process_value = lambda ctx, value: None if value is None else process(ctx, value)


def _plain_flag(argument: str, flags: set[str]) -> str:
    name, equals, value = argument.partition("=")
    name = name.replace("_", "-")
    if not equals or name not in flags:
        return argument
    if value.lower() not in _TRUE + _FALSE:
        raise UsageError(f"{name}: expected true or false, received '{value}'")
    return name if value.lower() in _TRUE else f"--no-{name[2:]}"

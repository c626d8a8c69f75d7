"""``ringlet config``: the configuration of a run, resolved, checked or described."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.cli.options import RunCommand, with_run_options
from ringlet.errors import ConfigError

if TYPE_CHECKING:
    from ringlet.config import RunConfig, Settings

EXAMPLES = (
    ("ringlet config show", "every option with its value and where it comes from"),
    ("ringlet config show run.toml --seed 1 --changed", "what a file, the environment and options change"),
    ("ringlet config check run.toml", "find mistakes, with their lines, without training"),
    ("ringlet config schema", "a JSON schema, for editors"),
)


def show(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="TOML file with options")] = None,
    *,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="the same")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout")] = False,
    **values: Any,
) -> None:
    """Show the configuration that `ringlet train` would use, and where each value comes from.

    That is: default, a line of the file, an environment variable, an option, or what follows from another value.
    """
    from ringlet.cli import display
    from ringlet.cli.options import one_file
    from ringlet.config import gather

    given = {name: value for name, value in values.items() if value is not None}
    settings = gather(one_file(file, config), os.environ, given)
    rows = _rows(settings, settings.build(), changed=changed)
    for remark in settings.remarks:
        display.note(remark)
    if json:
        options = {name: {"value": value, "source": source} for name, value, source in rows}
        display.print_json({"options": options})
        return
    cells = [(name, display.plain_value(value), source) for name, value, source in rows]
    display.results_console().print(display.table(("Option", "Value", "From"), cells))


def _rows(settings: Settings, config: RunConfig, *, changed: bool) -> list[tuple[str, Any, str]]:
    """(option, value, where from) of every option, or of those that are not as by default."""
    from ringlet.config import RunConfig

    values, defaults = config.to_dict(), RunConfig().to_dict()
    rows = []
    for name in config.names():
        value, origin = values.get(name), settings.origin(name)
        if value == defaults.get(name) and (changed or origin is None or value is None):
            source = "default"
        else:
            source = "follows from others" if origin is None else origin.removesuffix(f": {name}")
        if source != "default" or not changed:
            rows.append((name, value, source))
    return rows


def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with options")]) -> None:
    """Check a configuration file: its form, names, types, ranges and contradictions; nothing is loaded or trained."""
    from ringlet.cli import display
    from ringlet.config import gather
    from ringlet.training.components import unknown_names

    settings = gather(file)
    config = settings.build()
    problems = [f"{settings.origin(name) or name}: {problem}" for name, problem in unknown_names(config).items()]
    if problems:
        raise ConfigError("\n".join(problems))
    for remark in config.notes():
        display.note(remark)
    count = len(settings.values)
    print(f"{display.clean(file)}: {count} option{'' if count == 1 else 's'} set, no mistakes")


def schema() -> None:
    """Print the JSON schema of a configuration file."""
    from ringlet.cli import display
    from ringlet.config.schema import json_schema

    display.print_json(json_schema())


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        help="Show, check or describe the configuration of a run.",
    )
    app.command("show", cls=RunCommand)(with_run_options(show))
    app.command("check")(check)
    app.command("schema")(schema)
    return typer.main.get_command(app)

"""``ringlet init``: a commented configuration file of all options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ringlet.cli.options import RunCommand, with_run_options
from ringlet.errors import FileWriteError, UsageError

EXAMPLES = (
    ("ringlet init", "all options with their defaults, into run.toml"),
    ("ringlet init cifar.toml --model resnet20 --dataset cifar10", "two of them set"),
    ("ringlet init - --optimizer sgd", "to stdout"),
)
STDOUT = Path("-")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file to write (default: run.toml); -: stdout")] = (
        Path("run.toml")
    ),
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists")] = False,
    **values: Any,
) -> None:
    """Write a commented configuration file of all options.

    Every option stands in it with its meaning and default, commented out; those given here are set. `ringlet train
    FILE` reads it.
    """
    from ringlet.config import gather
    from ringlet.config.template import template
    from ringlet.training.components import unknown_names

    given = {name: value for name, value in values.items() if value is not None}
    config = gather(options=given).build()
    problems = unknown_names(config)
    if problems:
        raise UsageError("\n".join(problems.values()))
    text = template({name: getattr(config, name) for name in config.model_fields_set})
    if file == STDOUT:
        print(text, end="")
        return
    _write(file, text, force=force)
    print(file)


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a file that is complete or not there."""
    from ringlet.cli import display
    from ringlet.io.disk import write_whole

    if file.is_dir():
        raise UsageError(f"'{file}' is a folder: give the name of a file, such as '{file / 'run.toml'}'")
    if file.exists() and not force:
        raise UsageError(f"'{file}' exists: give another name, or --force to replace it")
    try:
        write_whole(file, text.encode())
    except FileWriteError as error:
        raise UsageError(f"{error}. Give another name") from None
    display.note(f"edit it, then: ringlet train {display.clean(file)}")


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("init", cls=RunCommand)(with_run_options(init))
    return typer.main.get_command(app)

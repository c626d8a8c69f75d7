"""The options of a run on the command line: made from the configuration, which knows them.

``--help`` shows the few that most people use; they alone are declared to the parser. All others are taken off the
command line before it is parsed, by any of their names, and are explained by ``--help TOPIC``.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ringlet.cli import completers
from ringlet.errors import UsageError

COMMON = {
    "model": ("NAME", "network of the zoo: see `ringlet models` (default: one that fits the data)"),
    "dataset": ("NAME", "`ringlet datasets`, or folder:PATH, masks:PATH, npz:PATH (default: digits)"),
    "image_size": ("N,N", "height,width, or one number, to which images are resized"),
    "num_epochs": ("INT", "passes over the training data (default: 50)"),
    "global_batch_size": ("INT", "samples of a step over all workers"),
    "local_batch_size": ("INT", "or: samples of one worker (default: 64, with masks 8)"),
    "optimizer": ("NAME", "see --help optimizer (default: adam)"),
    "learning_rate": ("NUMBER", "learning rate (default: the optimizer's)"),
    "schedule": ("NAME,…", "learning rate over time, reasons to stop: see --help schedule"),
    "strategy": ("NAME", "how workers agree: see --help strategy (default: sync)"),
    "shards": ("INT", "the same bits on any number of workers up to this"),
    "engine": ("NAME", "what computes: native, torch or keras (default: native)"),
    "seed": ("INT", "of weights, sample order, dropout and augmentation (default: 0)"),
    "run_dir": ("PATH", "run directory (default: runs/<model>-<dataset>-<time>)"),
    "resume": ("auto|N", "resume from a checkpoint of the run directory"),
}
"""What `--help` shows; everything else is one `--help TOPIC` away."""
PANEL = "Options that most people use"
_VALUES = "ringlet.run_options"
_taken_off: ContextVar[dict[str, Any]] = ContextVar("run options", default={})  # noqa: B039  never changed
"""Options that were taken off the command line, on their way past the parser."""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
Offers = Callable[[str], bool]


def with_run_options(function: Callable[..., Any], offers: Offers = lambda _: True) -> Callable[..., Any]:
    """Give ``function(…, **values)`` the options of a run, by any of their names; those not given are left out or None.

    ``offers`` says by name which options it takes, if not all.
    """
    own = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "values"]
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in own]
    parameters += [_parameter(name, *about) for name, about in COMMON.items() if offers(name)]

    def command(**values: Any) -> Any:
        return function(**values, **_taken_off.get())

    paragraphs = (function.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.offers = offers  # type: ignore[attr-defined]
    return command


def one_file(file: Path | None, config: Path | None) -> Path | None:
    """The configuration file, given by its name alone or by ``--config``."""
    if file is not None and config is not None and file != config:
        raise UsageError(f"two configuration files, '{file}' and '{config}': give one of them")
    if file is not None and not file.exists() and not file.suffix:
        raise UsageError(f"configuration file '{file}' does not exist. Options begin with --, such as --model {file}")
    return config if file is None else file


def _parameter(name: str, metavar: str, meaning: str) -> inspect.Parameter:
    declared = typer.Option(
        f"--{name.replace('_', '-')}",
        help=meaning,
        metavar=metavar,
        rich_help_panel=PANEL,
        show_default=False,
        autocompletion=completers.of_run_option(name),
    )
    annotation = Annotated[str | None, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


class RunCommand(TyperCommand):
    """A verb with options of a run: shows its help in plain text (the parser's boxes take twice as long), by topic."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The list for ``--help``: general options first, then those of a run, then where the others are."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or "General", []).append(record)
        for title in sorted(sections, key=lambda title: title != "General"):
            with formatter.section(title):
                formatter.write_dl(sections[title])
        with formatter.section("All other options, by topic"):
            formatter.write_text(f"{ctx.command_path} --help TOPIC, TOPIC being one of")
            formatter.write_text(", ".join(_topics()))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Explain a topic, or take the options of a run off the command line and parse what is left."""
        topic = _topic(args)
        if topic is not None and not ctx.resilient_parsing:
            print(_explained(topic))
            ctx.exit()
        rest, values = split_run_options(args, self.params, self.offers, ctx.command_path)
        ctx.meta[_VALUES] = values
        return super().parse_args(ctx, rest)

    def invoke(self, ctx: Any) -> Any:
        """Call the verb with all options."""
        _taken_off.set(run_options(ctx))
        return super().invoke(ctx)

    @property
    def offers(self) -> Offers:
        """Which options of a run this verb takes."""
        found: Offers = getattr(self.callback, "offers", lambda _: True)
        return found


def run_options(ctx: Any) -> dict[str, Any]:
    """The options of a run that were taken off the command line of this context, as texts, true or false."""
    found: dict[str, Any] = ctx.meta.get(_VALUES, {})
    return found


def split_run_options(
    args: Iterable[str], declared: Iterable[Any], offers: Offers, path: str
) -> tuple[list[str], dict[str, Any]]:
    """What is left for the parser, and the values of options that the configuration knows.

    ``--name value``, ``--name=value``, ``--flag``, ``--no-flag`` and, as older command lines write, ``--flag=true``.
    """
    takes_value = {
        option: not parameter.is_flag
        for parameter in declared
        if parameter.param_type_name == "option"
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    takes_value["--help"] = False
    rest: list[str] = []
    values: dict[str, Any] = {}
    words = iter(args)
    for word in words:
        head, equals, value = word.partition("=")
        spelled = head.replace("_", "-")
        if word == "--":
            rest += [word, *words]
        elif not word.startswith("--") or spelled in takes_value:
            rest.append(word)
            if takes_value.get(spelled if word.startswith("--") else word, False) and not equals:
                rest += [following for following in [next(words, None)] if following is not None]
        else:
            name, taken = _taken(spelled[2:].replace("-", "_"), value if equals else None, words, offers, path)
            values[name] = taken
    return rest, values


def _taken(name: str, value: str | None, words: Any, offers: Offers, path: str) -> tuple[str, Any]:
    """The option's own spelling and its value: what was given, the next word, or on and off."""
    from ringlet.config.names import WITHOUT_EFFECT, is_flag, locate

    positive = name.removeprefix("no_")
    for candidate in (name, positive):
        if not (offers(candidate) and (candidate in WITHOUT_EFFECT or locate(candidate) is not None)):
            continue
        if not is_flag(candidate):
            if candidate != name:
                break
            given = next(words, None) if value is None else value
            if given is None:
                raise UsageError(f"option '--{name.replace('_', '-')}' needs a value\nSee `{path} --help`.")
            return candidate, given
        if value is None:
            return candidate, candidate == name
        if value.lower() not in _TRUE + _FALSE:
            raise UsageError(f"--{name.replace('_', '-')}: expected true or false, received '{value}'")
        return candidate, (value.lower() in _TRUE) == (candidate == name)
    raise UsageError(_unknown(name, offers, path))


def _unknown(name: str, offers: Offers, path: str) -> str:
    from ringlet.config.describe import option_names
    from ringlet.option_text import nearest

    section = name.partition(".")[0] if "." in name else None
    near = nearest(name, filter(offers, option_names(section) or option_names()))
    hint = f" Did you mean '--{near.replace('_', '-')}'?" if near else ""
    return f"unknown option '--{name.replace('_', '-')}'.{hint}\nSee `{path} --help`."


def _topics() -> tuple[str, ...]:
    from ringlet.config.sections import SECTIONS

    return (*(section.name for section in SECTIONS), "all", "aliases")


def _topic(args: list[str]) -> str | None:
    """The word after ``--help``, if it is a topic."""
    for word, following in pairwise(args):
        if word in ("--help", "-h") and not following.startswith("-"):
            if following not in _topics():
                from ringlet.errors import UnknownNameError

                raise UnknownNameError("help topic", following, _topics())
            return following
    return None


def _explained(topic: str) -> str:
    import shutil

    from ringlet.config.describe import help_text

    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    return help_text(topic, min(max(width, 60), 120))

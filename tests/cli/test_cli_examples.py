"""Every verb shows examples, and every example is accepted by the parser it is an example of."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import Any

import pytest
import typer

from ringlet.cli.main import VERBS, app
from ringlet.cli.options import COMMON, run_options
from ringlet.config import gather


def examples(verb: str) -> tuple[tuple[str, str], ...]:
    return import_module(f"ringlet.cli.{verb}").EXAMPLES


ALL = [(verb, line) for verb in VERBS for line, _ in examples(verb)]


def parse(line: str) -> Any:
    """The context of the command that ``line`` calls, as the real parser makes it; errors are raised."""
    program, *words = shlex.split(line)
    assert program == "ringlet"
    command: Any = typer.main.get_command(app)
    context: Any = typer.Context(command, info_name="ringlet")
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(context, name)
        assert command is not None, f"{line}: no command {name}"
        context = typer.Context(command, parent=context, info_name=name)
    return command.make_context(context.info_name, words, parent=context.parent)


@pytest.mark.parametrize(("verb", "line"), ALL)
def test_an_example_is_accepted_by_the_parser(verb, line):
    context = parse(line)
    assert context.command_path.split()[:2] == ["ringlet", verb]
    given = {name: value for name, value in context.params.items() if name in COMMON and value is not None}
    if verb in ("train", "resume", "init"):
        gather(options=given | run_options(context)).build().check_network()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ringlet watch --prot x", "NoSuchOption"),
        ("ringlet train --modle x", "UsageError"),
        ("ringlet bench --rounds many", "BadParameter"),
        ("ringlet sql list", "MissingParameter"),
        ("ringlet config check a b", "UsageError"),
        ("ringlet models --input-shape", "BadOptionUsage"),
    ],
)
def test_a_wrong_example_would_be_noticed(line, problem):
    with pytest.raises(Exception) as caught:
        parse(line)
    assert type(caught.value).__name__ == problem


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_its_examples_unwrapped(ringlet, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = ringlet(verb, "--help").stdout
    shown = text.split("\nExamples:\n")[1].splitlines()
    assert len(examples(verb)) >= 2
    assert [line.split("  # ")[0].strip() for line in shown] == [line for line, _ in examples(verb)]
    assert [line.split("  # ")[1] for line in shown] == [meaning for _, meaning in examples(verb)]


def test_a_sub_command_shows_only_its_own_examples(ringlet):
    shown = ringlet("sql", "score", "--help").stdout.split("\nExamples:\n")[1]
    assert shown.count("ringlet sql") == shown.count("ringlet sql score") == 1

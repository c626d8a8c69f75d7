"""Errors of the parser in the words of all other errors: what was given, what was expected, the nearest name."""

from __future__ import annotations

import re
from typing import Any

from ringlet.errors import UnknownNameError, nearest_names

_EXPECTED = (
    (re.compile(r"valid integer"), "a whole number"),
    (re.compile(r"valid number"), "a number"),
    (re.compile(r"valid boolean"), "true or false"),
    (re.compile(r"greater than or equal to (\S+)"), "at least {}"),
    (re.compile(r"less than or equal to (\S+)"), "at most {}"),
    (re.compile(r"greater than (\S+)"), "more than {}"),
    (re.compile(r"less than (\S+)"), "less than {}"),
)
"""How the parser says what it expected, and how we do."""
_SLIP = 0.75
"""How much like a command a word is that was meant as one."""
_NO_COMMAND = re.compile(r"No such command '(.*?)'")
_EXTRA = re.compile(r"Got unexpected extra argument(?:\(s\)|s)? \((.*)\)")


def in_our_words(error: Any) -> str:
    """The message of an error of the parser."""
    option, near = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    message = str(error.format_message()).rstrip(".")
    if option and near is not None:
        hint = f" Did you mean '{near[0]}'?" if near else ""
        return f"unknown option '{option}'.{hint}"
    if command := _NO_COMMAND.match(message):
        return _unknown_command(error, command[1])
    if extra := _EXTRA.match(message):
        return f"unexpected argument '{extra[1]}': expected options, which begin with --, or nothing more"
    if type(error).__name__ == "BadParameter":
        return _wrong_value(error, message)
    return message


def _unknown_command(error: Any, name: str) -> str:
    """The nearest sub-command; where there are one or two and it is no slip of theirs, the lines that were meant."""
    known = list(getattr(error.ctx.command, "commands", {}))
    if len(known) > 2 or nearest_names(name, known, least=_SLIP):
        return str(UnknownNameError("command", name, known))
    lines = " or ".join(f"`{error.ctx.command_path} {command} {name}`" for command in known)
    return f"unknown command '{name}'. Did you mean {lines}? Known: {', '.join(sorted(known))}"


def _wrong_value(error: Any, message: str) -> str:
    """``--rounds: expected a whole number``; what the parser says otherwise stays."""
    parameter = getattr(error, "param", None)
    names = [name for name in getattr(parameter, "opts", ()) if name.startswith("--")]
    place = names[-1] if names else getattr(parameter, "metavar", None)
    for pattern, words in _EXPECTED:
        found = pattern.search(message)
        if place and found:
            return f"{place}: expected {words.format(*found.groups())}{_given(error, parameter)}"
    return message


def _given(error: Any, parameter: Any) -> str:
    """What was given, looked up on the command line."""
    words = [str(word) for word in getattr(error.ctx.find_root(), "obj", None) or ()]
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in parameter.opts:
            given = value if equals else words[index + 1] if index + 1 < len(words) else ""
            return f", received '{given}'"
    return ""

"""What may come next on a command line: walks the parser's own tree, so any verb and any option is completed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

from ringlet.cli import known

BREAKS = "=:"
"""Characters at which bash cuts a word into several."""
_WORD = re.compile(r"[a-z0-9_]+")
_BY_METAVAR = {"RUN": known.runs, "MODEL": known.trained}


@dataclass(frozen=True)
class Candidate:
    """A word that may stand there, and what it means."""

    value: str
    meaning: str = ""


def joined(words: Sequence[str]) -> tuple[list[str], str]:
    """Words as typed, from the pieces into which bash cuts them, and how the last begins before its piece."""
    whole: list[str] = []
    glue = False
    for word in words:
        is_break = bool(word) and not word.strip(BREAKS)
        if whole and (glue or is_break):
            whole[-1] += word
        else:
            whole.append(word)
        glue = is_break
    last = words[-1] if words else ""
    piece = "" if last and not last.strip(BREAKS) else last
    whole = whole or [""]
    return whole, whole[-1][: len(whole[-1]) - len(piece)]


def candidates(root: Any, words: Sequence[str]) -> list[Candidate]:
    """What the last of ``words`` (without the program's name) may become; nothing: a file, or anything."""
    *done, current = words or [""]
    place = _Place(root)
    for word in done:
        place.take(word)
    found = place.complete(current)
    begin = current.replace("_", "-") if current.startswith("--") and "=" not in current else current
    return [candidate for candidate in found if candidate.value.startswith(begin) and candidate.value != current]


class _Place:
    """Where in the tree of commands the words lead to."""

    def __init__(self, root: Any) -> None:
        self.command, self.context = root, typer.Context(root, info_name="ringlet", resilient_parsing=True)
        self.open_option: Any = None
        self.num_arguments = 0
        self.given: set[str] = set()

    def take(self, word: str) -> None:
        """One word further."""
        if self.open_option is not None:
            self.open_option = None
        elif self._is_option(word):
            name, equals, _ = word.partition("=")
            option = self._option(name) or self._run_option(name)
            self.given |= set(option.opts) if option is not None else set()
            self.open_option = option if option is not None and not equals and not _is_flag(option) else None
        elif not self._descend(word):
            self.num_arguments += 1

    def complete(self, current: str) -> list[Candidate]:
        """What may stand here."""
        if self.open_option is not None:
            return self._values(self.open_option, current)
        if self._is_option(current):
            name, equals, value = current.partition("=")
            option = (self._option(name) or self._run_option(name)) if equals else None
            if option is not None:
                return [Candidate(f"{name}={found.value}", found.meaning) for found in self._values(option, value)]
            return self._options(by_path="." in current)
        children = self._children()
        return children if children else self._of_argument(current)

    def _is_option(self, word: str) -> bool:
        """Not behind the script of ``ringlet run``: there everything belongs to the script."""
        own = self.num_arguments == 0 or self.context.allow_interspersed_args
        return own and word.startswith("-") and word != "-"

    def _option(self, name: str) -> Any:
        spelled = name.replace("_", "-")
        options = (parameter for parameter in self._parameters() if parameter.param_type_name == "option")
        return next((option for option in options if spelled in (*option.opts, *option.secondary_opts)), None)

    def _run_option(self, name: str) -> Any:
        """An option that the configuration knows and the parser does not, as the parser would see it."""
        offers = getattr(self.command, "offers", None)
        if offers is None or not name.startswith("--"):
            return None
        from ringlet.config.run_config import is_flag, locate

        own = name[2:].replace("-", "_")
        if not offers(own) or locate(own) is None:
            return None
        return _RunOption(name, own, is_flag=is_flag(own))

    def _parameters(self) -> list[Any]:
        return list(self.command.get_params(self.context))

    def _descend(self, word: str) -> bool:
        if not hasattr(self.command, "list_commands") or self.num_arguments:
            return False
        child = self.command.get_command(self.context, word)
        if child is None:
            return False
        settings = getattr(child, "context_settings", {})
        self.context = typer.Context(child, parent=self.context, info_name=word, resilient_parsing=True)
        self.context.allow_interspersed_args = settings.get("allow_interspersed_args", True)
        self.command, self.given = child, set()
        return True

    def _children(self) -> list[Candidate]:
        if not hasattr(self.command, "list_commands"):
            return []
        summaries = getattr(self.command, "summaries", None) or {
            name: child.get_short_help_str(80) for name, child in self.command.commands.items()
        }
        return [Candidate(name, summaries[name]) for name in self.command.list_commands(self.context)]

    def _options(self, *, by_path: bool) -> list[Candidate]:
        found = []
        for parameter in self._parameters():
            record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(self.context)
            if parameter.param_type_name == "option" and record is not None and not self.given & set(parameter.opts):
                names = (*parameter.opts, *parameter.secondary_opts)
                found += [Candidate(name, record[1]) for name in names if name.startswith("--")]
        return found + self._run_options(found, by_path=by_path)

    def _run_options(self, found: Sequence[Candidate], *, by_path: bool) -> list[Candidate]:
        """Names of options of a run that the parser has not; their paths once a point was typed."""
        offers = getattr(self.command, "offers", None)
        if offers is None:
            return []
        from ringlet.config.describe import option_names

        names = [f"--{name.replace('_', '-')}" for name in option_names() if offers(name) and ("." in name) == by_path]
        there = {candidate.value for candidate in found} | self.given
        return [Candidate(name) for name in names if name not in there]

    def _of_argument(self, current: str) -> list[Candidate]:
        arguments = [parameter for parameter in self._parameters() if parameter.param_type_name == "argument"]
        if self.num_arguments < len(arguments):
            return self._values(arguments[self.num_arguments], current)
        return self._values(arguments[-1], current) if arguments and arguments[-1].nargs == -1 else []

    def _values(self, parameter: Any, current: str) -> list[Candidate]:
        """By the parameter's own completion, else by what its placeholder says."""
        if isinstance(parameter, _RunOption):
            return [Candidate(*pair) for pair in known.of_run_option(parameter.name)(current)]
        own = [item for item in parameter.shell_complete(self.context, current) if item.type == "plain"]
        if own:
            return [Candidate(item.value, item.help or "") for item in own]
        placeholder = (parameter.metavar or "").strip("[].")
        if placeholder in _BY_METAVAR:
            return [Candidate(*pair) for pair in _BY_METAVAR[placeholder](current)]
        words = placeholder.split("|")
        return [Candidate(word) for word in words if len(words) > 1 and _WORD.fullmatch(word)]


@dataclass(frozen=True)
class _RunOption:
    """As much of a parser's option as completion looks at."""

    spelled: str
    name: str
    is_flag: bool

    @property
    def opts(self) -> list[str]:
        """Its one spelling."""
        return [self.spelled]


def _is_flag(option: Any) -> bool:
    return bool(option.is_flag or getattr(option, "count", False))

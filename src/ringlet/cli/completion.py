"""``ringlet completion``: the script for a shell, and the answers that the script asks for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ringlet.cli import completers
from ringlet.errors import UnknownNameError

EXAMPLES = (
    ("ringlet completion bash", 'put into ~/.bashrc: eval "$(ringlet completion bash)"'),
    ("ringlet completion zsh", 'put into ~/.zshrc, behind compinit: eval "$(ringlet completion zsh)"'),
    ("ringlet completion fish", "ringlet completion fish > ~/.config/fish/completions/ringlet.fish"),
)
BASH = r"""# Completion of ringlet for bash 4.4 or newer.
_ringlet() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion answer bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    case "${COMPREPLY[*]}" in
        *[=/:]) compopt -o nospace 2>/dev/null ;;
    esac
    return 0
}
complete -o bashdefault -o default -F _ringlet ringlet
"""
ZSH = r"""#compdef ringlet
# Completion of ringlet for zsh: behind compinit, or as a file _ringlet of a folder of fpath.
_ringlet() {
    local -a answers open
    local answer
    answers=("${(@f)$("${words[1]}" completion answer zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    answers=("${(@)answers:#}")
    if (( ! $#answers )); then
        _files
        return
    fi
    open=("${(@M)answers:#*([=\/]|\\:)(:*|)}")
    if (( $#open == $#answers )); then
        _describe -o ringlet answers -S ''
    else
        _describe -o ringlet answers
    fi
}
if [[ "${funcstack[1]}" == _ringlet ]]; then
    _ringlet "$@"
else
    compdef _ringlet ringlet
fi
"""
FISH = r"""# Completion of ringlet for fish.
function __ringlet_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l answers (command $words[1] completion answer fish $words[2..-1] 2>/dev/null)
    if test (count $answers) -eq 0
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $answers
    end
end
complete --command ringlet --no-files --arguments '(__ringlet_complete)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="the shell that you use")],
) -> None:
    """Print the script that lets a shell complete commands, options and values.

    Networks, data sets, optimizers, strategies and run directories are completed as well. The shell must find ringlet.
    """
    if shell not in SCRIPTS:
        raise UnknownNameError("shell", shell, SCRIPTS)
    print(SCRIPTS[shell], end="")


def answer(root: Any, shell: str, words: Sequence[str]) -> None:
    """Candidates for the last of ``words``, one a line, as the scripts above expect them.

    The process ends behind it: what would cost time only (collecting garbage, looking for plugins) is left out.
    """
    import gc
    import os

    gc.disable()
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    try:
        whole, before = joined(words) if shell == "bash" else (list(words) or [""], "")
        for found in candidates(root, whole):
            print(_line(shell, found, before))
    finally:
        gc.enable()
        del os.environ["PYDANTIC_DISABLE_PLUGINS"]


def _line(shell: str, found: Candidate, before: str) -> str:
    meaning = " ".join(found.meaning.split())
    if shell == "bash":
        return found.value[len(before) :]  # bash replaces the last piece of the word only
    if shell == "fish":
        return f"{found.value}\t{meaning}" if meaning else found.value
    value = found.value.replace("\\", "\\\\").replace(":", "\\:")
    return f"{value}:{meaning}" if meaning else value


def command() -> Any:
    """The command for the root group."""
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command("completion")(completion)
    return typer.main.get_command(app)


BREAKS = "=:"
"""Characters at which bash cuts a word into several."""
_WORD = re.compile(r"[a-z0-9_]+")
_BY_METAVAR = {"RUN": completers.runs, "MODEL": completers.trained}


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
            return self._options(_section(current))
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
        from ringlet.config.names import is_flag, locate

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

    def _options(self, section: str | None) -> list[Candidate]:
        found = []
        for parameter in self._parameters():
            record = None if getattr(parameter, "hidden", False) else parameter.get_help_record(self.context)
            if parameter.param_type_name == "option" and record is not None and not self.given & set(parameter.opts):
                names = (*parameter.opts, *parameter.secondary_opts)
                found += [Candidate(name, record[1]) for name in names if name.startswith("--")]
        return found + self._run_options(found, section)

    def _run_options(self, found: Sequence[Candidate], section: str | None) -> list[Candidate]:
        """Names of options of a run that the parser has not; the paths of a section once its point was typed."""
        offers = getattr(self.command, "offers", None)
        if offers is None:
            return []
        from ringlet.config.describe import option_names

        names = [f"--{name.replace('_', '-')}" for name in option_names(section) if offers(name)]
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
            return [Candidate(*pair) for pair in completers.of_run_option(parameter.name)(current)]
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


def _section(current: str) -> str | None:
    """The section whose options are asked for: what stands before the first point."""
    head, point, _ = current.removeprefix("--").partition(".")
    return head if point else None


def _is_flag(option: Any) -> bool:
    return bool(option.is_flag or getattr(option, "count", False))

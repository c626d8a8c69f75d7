"""``ringlet completion``: the script for a shell, and the answers that the script asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringlet.errors import UnknownNameError

if TYPE_CHECKING:
    from ringlet.cli.completing import Candidate

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

    from ringlet.cli.completing import candidates, joined

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

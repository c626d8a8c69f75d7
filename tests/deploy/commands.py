"""Commands in files of deploy/, examples/ and docs/, read as the command line itself would read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ringlet.cli.main import VERBS
from ringlet.cli.options import COMMON, run_options
from ringlet.config import gather
from ringlet.data.catalogue import catalogue
from ringlet.models import zoo

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
_CONTINUED = re.compile(r"\\\n\s*")
_FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def shell_lines(text: str) -> list[str]:
    """Lines of a script: continued ones joined, comments and prompts left out."""
    lines = (line.strip().removeprefix("$ ") for line in _CONTINUED.sub(" ", text).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def fenced_lines(page: Path) -> list[str]:
    """Lines of all code blocks of a page."""
    return [line for block in _FENCED.findall(page.read_text()) for line in shell_lines(block)]


def ringlet_commands(lines: Sequence[str]) -> Iterator[list[str]]:
    """The words after every `ringlet` that is called in these lines; variables become a number."""
    for line in lines:
        words = [re.sub(r"\$\{?\w+\}?", "1", word) for word in shlex.split(line, comments=True)]
        for place, word in enumerate(words):
            if word == "ringlet" and words[place + 1 : place + 2] and words[place + 1] in VERBS:
                yield words[place + 1 :]


def parse(words: Sequence[str]) -> dict[str, Any]:
    """The options of a `ringlet` command by its verb's own parser. Of a training, values and names are checked too."""
    verb, *rest = words
    context = import_module(f"ringlet.cli.{verb}").command().make_context(verb, rest)
    if verb == "train":
        given = {name: value for name, value in context.params.items() if name in COMMON and value is not None}
        config = gather(None, {}, given | run_options(context)).build()
        zoo.describe(config.model.network)
        assert config.dataset.name in {entry.name for entry in catalogue()}, config.dataset
    if verb == "run" and context.params["command"]:
        assert (REPOSITORY / context.params["command"][0]).is_file(), context.params["command"]
    return dict(context.params) | run_options(context)

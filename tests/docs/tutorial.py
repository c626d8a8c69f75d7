"""Tutorials as programs: the blocks of a page, carried out in order in an empty folder.

- A block with a title, as ```` ```python title="train.py" ````, is written to that file.
- In a ``console`` block a line ``$ command`` is run by bash (a backslash at its end continues it); the lines below it
  are what it prints, output and errors together. ``…`` in a line stands for any text, a line ``…`` for any lines. A
  number with a decimal point is an example: any number may stand there. All else must be as shown.
- A command must succeed. One that fails is followed by ``$ echo $?``, which shows its exit code.
- ``<!-- check: NAME >= VALUE -->`` behind a block: the last number after NAME in what the block printed is that large
  (``<=``: that small).
- ``<!-- timeout: SECONDS -->`` gives the whole page another limit.

What TensorFlow remarks about the processor is no part of what a command prints: it differs by processor, and no setting
keeps it away.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import ringlet
from ringlet.comm.environments import VARIABLES

DEFAULT_SECONDS = 120.0
QUICK_IMPORTS = Path(__file__).parents[1] / "quick_imports"
FENCE = re.compile(r"^```(\w+)?(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHECK = re.compile(r"<!-- check: (.+?) (>=|<=) (\S+) -->")
REMARK = re.compile(
    r"^(?:\[rank \d+\] )?(?:WARNING: All log messages before absl|I\d{4} \S+ +\d+ \S+\.cc:\d+\]).*\n",
    re.MULTILINE,
)
TIMEOUT = re.compile(r"<!-- timeout: (\d+) -->")
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"


@dataclass(frozen=True)
class File:
    """A block that is a file."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A line that is typed, and the lines that are shown below it."""

    text: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """A number that must have been printed by the block before."""

    name: str
    relation: str
    value: float


@dataclass
class Tutorial:
    """What a page lets its reader do, in order."""

    steps: list[File | Command | Check] = field(default_factory=list)
    seconds: float = DEFAULT_SECONDS


class TutorialError(AssertionError):
    """A page that does not tell the truth."""


def parse(text: str) -> Tutorial:
    """The steps of a page; a block that is neither run nor written is an error."""
    found: list[tuple[int, list[File | Command | Check]]] = []
    for match in FENCE.finditer(text):
        language, title, body = match.groups()
        if title:
            found.append((match.start(), [File(title, body)]))
        elif language == "console":
            found.append((match.start(), list(_commands(body))))
        else:
            raise TutorialError(f"a block of {language or 'text'} is neither a file nor a console: {body[:60]!r}")
    found += [(match.start(), [Check(match[1], match[2], float(match[3]))]) for match in CHECK.finditer(text)]
    limit = TIMEOUT.search(text)
    steps = [step for _, group in sorted(found, key=lambda entry: entry[0]) for step in group]
    return Tutorial(steps, float(limit[1]) if limit else DEFAULT_SECONDS)


def _commands(body: str) -> Iterator[Command]:
    lines = body.splitlines()
    if not lines or not lines[0].startswith("$ "):
        raise TutorialError(f"a console block begins with a command, not with {body[:60]!r}")
    typed: str | None = None
    shown: list[str] = []
    continued = False
    for line in lines:
        if continued:
            typed = f"{typed}\n{line}"
        elif line.startswith("$ "):
            if typed is not None:
                yield Command(typed, tuple(shown))
            typed, shown = line[2:], []
        else:
            shown.append(line)
            continue
        continued = line.endswith("\\")
    if typed is not None:
        yield Command(typed, tuple(shown))


def run(tutorial: Tutorial, folder: Path) -> None:
    """Do in ``folder`` what the page says; the first thing that is not as it says is an error."""
    deadline = time.monotonic() + tutorial.seconds
    printed, code = "", 0
    for number, step in enumerate(tutorial.steps):
        if isinstance(step, File):
            path = folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
        elif isinstance(step, Command):
            output, code = _typed(step.text, code, folder, deadline - time.monotonic())
            printed = output if _first_of_block(tutorial, number) else printed + output
            following = tutorial.steps[number + 1] if number + 1 < len(tutorial.steps) else None
            if code and not (isinstance(following, Command) and following.text == "echo $?"):
                raise TutorialError(f"$ {step.text}\nleft with exit code {code}:\n{output}")
            if step.shown and not matches(step.shown, output):
                shown = "\n".join(step.shown)
                raise TutorialError(f"$ {step.text}\nis shown with\n{shown}\nbut printed\n{output}")
        else:
            _checked(step, printed)


def _first_of_block(tutorial: Tutorial, number: int) -> bool:
    return number == 0 or not isinstance(tutorial.steps[number - 1], Command)


def _typed(command: str, code: int, folder: Path, seconds: float) -> tuple[str, int]:
    """What a command prints, and its exit code; with all that it started it ends within its time."""
    process = subprocess.Popen(
        ["bash", "-c", f"(exit {code})\n{command}"],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise TutorialError(f"$ {command}\nwas not done when the page's time was over; it printed\n{output}") from None
    return REMARK.sub("", output), process.returncode


def environment(folder: Path) -> dict[str, str]:
    """A reader's shell without MPI: this Python and this Ringlet, one thread per worker, nothing of a launcher."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    home = Path(sys.executable).parent
    if not (home / "ringlet").exists():  # tested from the sources, without an installation
        _make_command(folder.parent / "bin" / "ringlet")
    return kept | {
        "PATH": os.pathsep.join([str(folder.parent / "bin"), str(home), kept.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(ringlet.__file__).parents[1]), str(QUICK_IMPORTS), kept.get("PYTHONPATH", "")]
        ),
        "COLUMNS": "160",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "RINGLET_LAUNCHER": kept.get("RINGLET_LAUNCHER", "local"),
        "RINGLET_CACHE": kept.get("RINGLET_CACHE", str(folder / "cache")),
    }


def _make_command(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ringlet "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def matches(shown: tuple[str, ...], output: str) -> bool:
    """Whether output is what a page shows."""
    pattern = ""
    for line in shown:
        pattern += r"(?:.*\n)*?" if line.strip() == "…" else _line(line) + r"[ ]*\n"
    return re.fullmatch(pattern, output if output.endswith("\n") else output + "\n") is not None


def _line(line: str) -> str:
    """The pattern of one shown line."""
    parts = re.split(r"(…|\d[\d,]*\.\d+(?:e[-+]?\d+)?)", line.rstrip())
    parts[1::2] = [".*" if part == "…" else NUMBER for part in parts[1::2]]
    parts[::2] = [re.escape(part) for part in parts[::2]]
    return "".join(parts)


def _checked(check: Check, printed: str) -> None:
    found = re.findall(rf"{re.escape(check.name)}\W*?({NUMBER})", printed)
    if not found:
        raise TutorialError(f"no number after {check.name!r} in\n{printed}")
    value = float(found[-1].replace(",", ""))
    if not (value >= check.value if check.relation == ">=" else value <= check.value):
        raise TutorialError(f"{check.name} is {value}, not {check.relation} {check.value}:\n{printed}")

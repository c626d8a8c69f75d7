"""A picture of a real run for the README: ``python scripts/terminal_picture.py``.

Runs ``ringlet train`` on the built-in digits on a terminal, keeps what is on the screen at the end, and writes it as
``docs/images/train.svg``: text, drawn in whatever monospaced font the reader has, with nothing fetched from elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "train.svg"
COLUMNS = 118
ARGUMENTS = ("train", "--num-epochs", "8", "--run-dir", "runs/digits")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[78=>]")
FONT_FACE = re.compile(r"@font-face\s*\{.*?\}\s*", re.DOTALL)
RULE_BETWEEN_ROWS = "├"


def main() -> None:
    """Run, choose lines, draw."""
    with tempfile.TemporaryDirectory() as folder:
        output = record(folder)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), color_system="standard")  # noqa: SIM115, PTH123
    console.print(Text(f"$ ringlet {' '.join(ARGUMENTS)}", style="bold"))
    for line in (*screen_lines(output), ""):
        console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)
    picture = without_fonts(console.export_svg(title="ringlet train", unique_id="ringlet"))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture, encoding="utf-8")


def record(folder: str) -> str:
    """All that the run writes to its terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "ringlet", *ARGUMENTS]
    environment |= {
        "TERM": "xterm-256color",
        "COLORTERM": "",
        "RINGLET_CACHE": f"{folder}/cache",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    process = subprocess.Popen(command, cwd=folder, stdout=slave, stderr=slave, env=environment)  # noqa: S603
    os.close(slave)
    data = b""
    while chunk := _read(master):
        data += chunk
    if process.wait() != 0:
        sys.exit(f"the run failed:\n{data.decode()}")
    return data.decode()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def screen_lines(output: str) -> list[str]:
    """The lines as they stand at the end: no bars that were drawn over, no rules between rows."""
    lines, rules = [], 0
    for raw in output.replace("\r\n", "\n").split("\n"):
        line = CONTROL.sub("", raw.rsplit("\x1b[2K", 1)[-1]).split("\r")[-1]
        bare = CONTROL.sub("", re.sub(r"\x1b\[[0-9;]*m", "", line))
        rules += bare.startswith(RULE_BETWEEN_ROWS)
        if bare.strip() and "━" not in bare and not (bare.startswith(RULE_BETWEEN_ROWS) and rules > 1):
            lines.append(line)
    return lines


def without_fonts(svg: str) -> str:
    """The picture without fonts from other places; only the names of namespaces may look like addresses."""
    svg = FONT_FACE.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    addresses = set(re.findall(r"https?://[^\s\"')]+", svg)) - {"http://www.w3.org/2000/svg"}
    if addresses:
        sys.exit(f"the picture would fetch {', '.join(sorted(addresses))}")
    return svg


if __name__ == "__main__":
    main()

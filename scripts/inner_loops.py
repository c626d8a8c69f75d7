"""What the innermost loops of the kernels for 64-bit ARM consist of: counts of instructions, for want of a processor.

    python scripts/inner_loops.py OBJECT_FILE 'multiply_tile<float, 4, 8, 3>'

``make test-arm64`` leaves object files in build/arm64/cmake/CMakeFiles/kernels_generic.dir/native. For every function
whose name contains the text: of its innermost loops the one with most multiplications. What is loaded from and stored
to the stack in there are values for which the compiler had no register. A good loop of a register tile has none,
and little beside multiplications; what it costs only a processor can tell.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COLUMNS = ("multiplications", "vector loads, broadcasts", "from the stack", "to the stack", "other", "all")


class Instruction(NamedTuple):
    """A line of a disassembly."""

    address: int
    name: str
    operands: str

    @property
    def target(self) -> int | None:
        """Where a jump leads."""
        found = re.search(r"\b([0-9a-f]+) <", self.operands)
        return int(found[1], 16) if found and re.match(r"b\b|b\.|cbn?z|tbn?z", self.name) else None

    @property
    def kind(self) -> str:
        """One of the columns."""
        stack = "[sp" in self.operands or "[x29" in self.operands
        if self.name in ("fmla", "fmls", "fmul", "fmadd"):
            return COLUMNS[0]
        if self.name.startswith("ld"):
            return COLUMNS[2] if stack else COLUMNS[1] if re.match(r"[{qvsd]", self.operands) else COLUMNS[4]
        if self.name.startswith("st"):
            return COLUMNS[3] if stack else COLUMNS[4]
        return COLUMNS[1] if self.name == "dup" else COLUMNS[4]


def main() -> None:
    """Count and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", type=Path, help="object file or library")
    options.add_argument("names", nargs="+", help="parts of function names")
    options.add_argument("--objdump", default="aarch64-linux-gnu-objdump", help="(default: %(default)s)")
    given = options.parse_args()
    command = [given.objdump, "-d", "-C", "--no-show-raw-insn", str(given.file)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 (the user names the program)
    rows = []
    for name, body in functions(text):
        loop = main_loop(body)
        if any(part in name for part in given.names) and loop:
            counts = count(loop)
            rows.append((short(name), *(counts[column] for column in COLUMNS[:-1]), len(loop)))
    for row in (("function", *COLUMNS), ("---", *["---:"] * len(COLUMNS)), *rows):
        sys.stdout.write("| " + " | ".join(map(str, row)) + " |\n")


def functions(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """The functions of a disassembly, by their full names."""
    for block in re.split(r"\n(?=[0-9a-f]{16} <)", text):
        head = re.match(r"[0-9a-f]{16} <(.*)>:", block)
        if head:
            lines = re.findall(r"^\s*([0-9a-f]+):\s+(\S+)[ \t]*(.*)$", block, re.MULTILINE)
            yield head[1], [Instruction(int(address, 16), name, rest) for address, name, rest in lines]


def main_loop(body: list[Instruction]) -> list[Instruction]:
    """Of the loops that hold no other loop, the one with most multiplications."""
    places = {instruction.address: place for place, instruction in enumerate(body)}
    targets = ((places.get(instruction.target or -1), place) for place, instruction in enumerate(body))
    loops = [(first, last) for first, last in targets if first is not None and first <= last]
    inner = [
        own for own in loops if not any(own != other and own[0] <= other[0] and other[1] <= own[1] for other in loops)
    ]
    found = [body[first : last + 1] for first, last in inner]
    return max(found, key=lambda loop: count(loop)[COLUMNS[0]], default=[])


def count(loop: list[Instruction]) -> Counter[str]:
    """Instructions by column."""
    return Counter(instruction.kind for instruction in loop)


def short(name: str) -> str:
    """Without namespaces, return type and arguments."""
    return re.sub(r"ringlet::(\w+::)?", "", name).removeprefix("void ").partition("(")[0]


if __name__ == "__main__":
    main()

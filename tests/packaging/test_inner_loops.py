"""``scripts/inner_loops.py`` finds the loop that matters in a disassembly and knows what its instructions are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import packages

DISASSEMBLY = """
file.o:     file format elf64-littleaarch64

0000000000000000 <void ringlet::generic::multiply_tile<float, 4>(long, float const*)>:
   0:	ldr	q0, [x1]
   4:	ldp	q1, q2, [x2]
   8:	ldr	q3, [sp, #16]
   c:	fmla	v4.4s, v1.4s, v0.s[0]
  10:	fmla	v5.4s, v2.4s, v0.s[0]
  14:	str	q5, [sp, #32]
  18:	add	x1, x1, #0x4
  1c:	cbnz	x3, 4 <void ringlet::generic::multiply_tile<float, 4>(long, float const*)+0x4>
  20:	subs	x4, x4, #0x1
  24:	b.ne	0 <void ringlet::generic::multiply_tile<float, 4>(long, float const*)>  // b.any
  28:	ret

0000000000000030 <other()>:
  30:	fmul	v0.4s, v0.4s, v1.4s
  34:	b	30 <other()>
"""


def test_the_innermost_loop_is_counted_and_spills_are_told_apart(tmp_path: Path) -> None:
    program = tmp_path / "objdump"
    program.write_text(f"#!/bin/sh\ncat << 'END'\n{DISASSEMBLY}END\n")
    program.chmod(0o755)
    command = [sys.executable, str(packages.REPOSITORY / "scripts" / "inner_loops.py"), "file.o", "multiply_tile"]
    done = subprocess.run([*command, "--objdump", str(program)], capture_output=True, text=True, check=True, timeout=60)
    header, _, row = done.stdout.splitlines()
    assert row.split(" | ")[0] == "| multiply_tile<float, 4>"
    counts = dict(zip(header.strip("| ").split(" | ")[1:], row.strip("| ").split(" | ")[1:], strict=True))
    assert counts == {
        "multiplications": "2",
        "vector loads, broadcasts": "1",
        "from the stack": "1",
        "to the stack": "1",
        "other": "2",
        "all": "7",
    }

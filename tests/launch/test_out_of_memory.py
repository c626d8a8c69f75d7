"""Memory that really runs out: a rank in a control group that is too small for it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

LIMIT_BYTES = 200 << 20
GREEDY = """
    from ringlet.comm.world import connect
    comm = connect()
    if comm.rank == 1:
        hoard = b"x" * (1 << 30)
    comm.barrier()
"""
ENTER = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); os.execv(sys.argv[2], sys.argv[2:])"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """The file by which a process enters a control group with little memory; skips where none can be made."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(root) / f"ringlet-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(LIMIT_BYTES))
            yield group / "cgroup.procs"
            return
        except OSError:
            continue
        finally:
            with suppress(OSError):
                group.rmdir()
    pytest.skip("no control group of memory can be made here")


def test_memory_that_ran_out_is_named_and_tried_again(begin, script, small_group):
    words = ("-m", "ringlet", "run", "-n", "2", "--launcher", "local", "--restarts", "1", str(script(GREEDY)))
    command = [sys.executable, "-c", ENTER, str(small_group), sys.executable, *words]
    done = begin(command, {"RINGLET_RESTART_DELAY": "0"}).finish()
    assert done.returncode == 3, done.stderr
    cause = "was killed by signal 9 (SIGKILL): memory ran out"
    assert f"{cause}. Try a smaller batch or fewer workers." in done.stderr
    assert f"restart 1 of 1: rank 1 {cause}" in done.stderr

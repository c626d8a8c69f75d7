"""Memory that a step frees serves the next step, instead of being cleared by the system again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from ringlet.allocator import VARIABLE

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an allocator of glibc")

NUM_STEPS = 20
PROGRAM = f"""
import resource
import numpy as np

{{prepare}}

def step():
    pieces = [np.ones(1 << 19) for _ in range(8)]  # 4 MiB each, all of them freed at the end


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


for _ in range(3):
    step()
before = faults()
for _ in range({NUM_STEPS}):
    step()
print(faults() - before)
"""
WAYS = {
    "any allocator": "from ringlet.allocator import keep_freed_memory\nkeep_freed_memory()",
    "ringlet.torch": "import ringlet.torch as hvd\nhvd.init()",
    "DDP": (
        "from torch import distributed\n"
        "distributed.init_process_group('ringlet', store=distributed.HashStore(), rank=0, world_size=1)"
    ),
    "engine": (
        "from ringlet.engines.engine import create_replica\nfrom ringlet.models import zoo\n"
        "create_replica('torch', zoo.create('simplemlp'))"
    ),
}


def pages_cleared(way: str, **variables: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(prepare=WAYS[way])],
        env=kept | variables, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return int(result.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_steps_use_the_memory_of_the_steps_before(way):
    if way != "any allocator":
        pytest.importorskip("torch")
    assert pages_cleared(way) < 100 * NUM_STEPS


@pytest.mark.parametrize(
    ("name", "value"),
    [(VARIABLE, "off"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072")],
)
def test_whoever_chooses_by_a_variable_is_heeded(name, value):
    assert pages_cleared("any allocator", **{name: value}) > 1000 * NUM_STEPS

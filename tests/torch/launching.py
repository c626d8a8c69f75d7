"""Starts a user's script on two ranks by any launcher, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import mpiexec

import ringlet
from ringlet.comm.environments import VARIABLES


def run_script(
    launcher: str, script: Path, folder: Path, *arguments: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """``script folder arguments…`` on two ranks, in that folder; ``options`` are the launcher's."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(ringlet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    interpreter = [sys.executable] if launcher == "mpiexec" else []
    command = [*_launcher(launcher), *options, *interpreter, str(script), str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, cwd=folder)


def _launcher(name: str) -> list[str]:
    if name == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    if name == "mpiexec":
        return [str(mpiexec()), "-n", "2"]
    return [sys.executable, "-m", "ringlet", "run", "-n", "2", "--launcher", "local"]

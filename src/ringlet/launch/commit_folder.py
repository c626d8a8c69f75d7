"""A folder in which commits of elastic states outlive the ranks of a supervised job, on every machine of it.

``python -m ringlet.launch.commit_folder FOLDER`` removes what ranks have made on another machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ringlet.launch.local import PlainProcesses
from ringlet.launch.mpiexec import MpiLauncher, run_on_hosts
from ringlet.launch.plan import LaunchPlan
from ringlet.launch.processes import JobFolder, python_command, python_environment
from ringlet.launch.restarts import COMMITS_VARIABLE, JOB_COMMITS_VARIABLE

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  what goes there is a folder of our own


@contextmanager
def commit_folder(plan: LaunchPlan, launcher: MpiLauncher | PlainProcesses) -> Iterator[Mapping[str, str]]:
    """Within: the folder exists here, and the variable that tells ranks of it; they make it on other machines.

    In memory where that can be shared: commits may be as frequent as steps. None is made if the user has named one.
    """
    if os.environ.get(COMMITS_VARIABLE):
        yield {}
        return
    folder = JobFolder(SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None)
    try:
        yield {JOB_COMMITS_VARIABLE: str(folder.path)}
    finally:
        folder.close()
        remove(folder.path)
        if isinstance(launcher, MpiLauncher) and not plan.is_local:
            command = python_command("ringlet.launch.commit_folder", str(folder.path))
            run_on_hosts(plan.hosts, launcher, python_environment(os.environ), command)


def places(folder: Path) -> tuple[Path, ...]:
    """Where commits may be: in the folder, and where there was no room, in one of that name among temporary files."""
    return tuple(dict.fromkeys((folder, Path(tempfile.gettempdir()) / folder.name)))


def remove(folder: Path) -> None:
    """Everything in both places, on this machine."""
    for place in places(folder):
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    remove(Path(sys.argv[1]))

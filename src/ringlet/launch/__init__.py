"""Starting ranks: takes a command and a :class:`LaunchPlan`, gives the job's exit code.

``starting`` chooses MPI (``mpiexec`` finds the program, ``mpi`` runs it and stands beside each rank) or plain
processes (``local``). ``job`` has the loop and knows who failed first, ``messages`` what ranks report, ``output`` where
lines go, ``worker`` what each rank runs, ``restarts`` whether all are started again. ``function`` calls a function on
all ranks and brings back what it returns. ``resources`` says how many cores and how much memory there are.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.launch.function import run
    from ringlet.launch.messages import is_rank
    from ringlet.launch.plan import Host, LaunchPlan, must_start, parse_hosts, read_hostfile
    from ringlet.launch.starting import relaunch, start

_HOMES = {
    "Host": "plan",
    "LaunchPlan": "plan",
    "is_rank": "messages",
    "must_start": "plan",
    "parse_hosts": "plan",
    "read_hostfile": "plan",
    "relaunch": "starting",
    "run": "function",
    "start": "starting",
}

__all__ = ["Host", "LaunchPlan", "is_rank", "must_start", "parse_hosts", "read_hostfile", "relaunch", "run", "start"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.launch' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.launch.{_HOMES[name]}"), name)

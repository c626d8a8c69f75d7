"""Which hosts answer: each is asked to start an interpreter, in the way in which ranks will be started there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import final

from ringlet.comm import environments
from ringlet.launch.folder import JobFolder
from ringlet.launch.hosts import Host
from ringlet.launch.mpiexec import MpiLauncher
from ringlet.launch.plan import LaunchPlan
from ringlet.launch.processes import start_guarded

PROBE_SECONDS = 20.0
"""How long hosts have for an answer, all of them together."""
_TICK_SECONDS = 0.05


def answering_hosts(
    hosts: Sequence[Host],
    launcher: MpiLauncher,
    environ: Mapping[str, str],
    *,
    seconds: float = PROBE_SECONDS,
    caught: Sequence[int] = (),
) -> tuple[Host, ...]:
    """Those of ``hosts`` that answer, in their order; this machine need not be asked. A signal ends the waiting."""
    probes = {host: _Probe(host, launcher, environ) for host in hosts if not host.is_this_machine}
    deadline = monotonic() + seconds
    try:
        while any(probe.is_open for probe in probes.values()) and monotonic() < deadline and not caught:
            sleep(_TICK_SECONDS)
        return tuple(host for host in hosts if host not in probes or probes[host].has_answered)
    finally:
        for probe in probes.values():
            probe.close()


def without_absent(plan: LaunchPlan, present: Sequence[Host]) -> LaunchPlan | None:
    """The plan on the hosts that are present; None if fewer workers would remain than it allows."""
    slots = sum(host.slots for host in present)
    size = min(plan.size, slots)
    if size < (plan.min_workers or plan.size):
        return None
    return replace(plan, num_workers=size, hosts=tuple(present))


@final
class _Probe:
    """An interpreter that does nothing, started on one host."""

    def __init__(self, host: Host, launcher: MpiLauncher, environ: Mapping[str, str]) -> None:
        self._folder = JobFolder()
        shared = {name: value for name, value in environ.items() if name not in environments.VARIABLES}
        nothing = [sys.executable, "-I", "-S", "-c", ""]
        command, extra = launcher.command(LaunchPlan(1, (Host(host.name),)), nothing, shared, Path(self._folder.path))
        self._process = start_guarded(command, {**shared, **extra}, subprocess.DEVNULL)

    @property
    def is_open(self) -> bool:
        return self._process.poll() is None

    @property
    def has_answered(self) -> bool:
        return self._process.poll() == 0

    def close(self) -> None:
        """End it with all it has started, if the host has not answered."""
        if self.is_open:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.close()

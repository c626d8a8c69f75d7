"""Find a program that starts MPI ranks and belongs to the MPI that mpi4py uses, and speak its dialect.

An mpiexec of another MPI starts as many processes as it is told, but each of them finds itself alone. So the kind of
program (what ``--version`` says) and the library (what mpi4py says) must be of one family. Which hosts answer is found
out in the way in which ranks will be started there: each is asked to start an interpreter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import final

from ringlet.comm import environments
from ringlet.comm.environments import INTERFACE, loopback_environment
from ringlet.errors import UsageError
from ringlet.launch.plan import Host, LaunchPlan
from ringlet.launch.processes import JobFolder, start_guarded

MPIEXEC_VARIABLE = "RINGLET_MPIEXEC"
KILL_SIGNAL = signal.SIGUSR1
"""What every launcher forwards; relays then end their ranks at once."""
LEAVE_SIGNAL = signal.SIGUSR2
"""What Open MPI and Slurm forward without acting on it; relays then send SIGTERM to their ranks."""
PROBE_SECONDS = 20.0
"""How long hosts have for an answer, all of them together."""
_TICK_SECONDS = 0.05
_VERSION_SECONDS = 60
_LIBRARY_PROBE = """\
import mpi4py
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""
_PASSED_ON = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class MpiLauncher:
    """A program that starts ranks."""

    path: str
    flavour: str
    """A name of :data:`FLAVOURS`."""
    family: str = "mpich"
    """The family of the library: ``mpich`` or ``openmpi``."""

    def command(
        self, plan: LaunchPlan, program: Sequence[str], environ: Mapping[str, str], folder: Path
    ) -> tuple[list[str], dict[str, str]]:
        """The command that starts ``program`` on all ranks, and variables it needs. Files go to ``folder``."""
        options, variables = FLAVOURS[self.flavour].options(plan, self.family, environ, folder)
        return [self.path, "-n", str(plan.size), *options, *program], variables

    def forwarding(self, number: int) -> int:
        """The signal to send to the program so that ranks get ``number`` (or SIGTERM instead)."""
        return number if FLAVOURS[self.flavour].forwards_signals else LEAVE_SIGNAL


@dataclass(frozen=True)
class Flavour:
    """A kind of program that starts ranks: how it is recognised, what it starts, which options it wants."""

    recognise: Callable[[str], bool]
    """By what ``--version`` says."""
    families: tuple[str, ...]
    """Libraries whose ranks it starts."""
    options: Callable[[LaunchPlan, str, Mapping[str, str], Path], tuple[list[str], dict[str, str]]]
    """By the plan, the family of the library, the environment and a folder for files: its options and variables."""
    forwards_signals: bool = False
    """Whether it forwards SIGINT and SIGTERM without acting on them."""


def _hydra_options(
    plan: LaunchPlan, _family: str, environ: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    here = loopback_environment(environ) if plan.stays_here else {}
    iface = ["-iface", INTERFACE] if here and not environ.get("HYDRA_IFACE") else []
    return [*iface, *_hosts_file(plan, folder, "{name}:{slots}", "-f")], here


def _openmpi_options(
    plan: LaunchPlan, _family: str, environ: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    here = loopback_environment(environ) if plan.stays_here else {}
    hosts = _hosts_file(plan, folder, "{name} slots={slots}", "--hostfile")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    names = [name for name in sorted(environ) if name.startswith("RINGLET_") or name in _PASSED_ON]
    exports = [word for name in names for word in ("-x", name)]
    if here and not environ.get("OMPI_MCA_btl"):
        here["OMPI_MCA_btl"] = "^tcp,ofi"
    return ["--bind-to", "none", "--oversubscribe", *root, *hosts, *exports], here


def _slurm_options(
    plan: LaunchPlan, family: str, _environ: Mapping[str, str], folder: Path
) -> tuple[list[str], dict[str, str]]:
    kind = "pmix" if family == "openmpi" else "pmi2"
    options = [f"--mpi={kind}", "--cpu-bind=none", "--kill-on-bad-exit=0", "--unbuffered"]
    if not plan.hosts:
        return options, {}
    lines = [host.name for host in plan.hosts for _ in range(host.slots)][: plan.size]
    file = _write(folder, "".join(f"{name}\n" for name in lines))
    return [*options, "--distribution=arbitrary"], {"SLURM_HOSTFILE": file}


def _first_line(version: str) -> str:
    return version.strip().split("\n", 1)[0].lower()


FLAVOURS = {
    "hydra": Flavour(
        lambda version: any(name in version for name in ("HYDRA", "Intel(R) MPI")),
        ("mpich",),
        _hydra_options,
        forwards_signals=True,
    ),
    "openmpi": Flavour(
        lambda version: any(name in _first_line(version) for name in ("open mpi", "openrte", "prrte")),
        ("openmpi",),
        _openmpi_options,
    ),
    "slurm": Flavour(lambda version: _first_line(version).startswith("slurm"), ("mpich", "openmpi"), _slurm_options),
}
"""Programs that are known: MPICH's (also of Intel MPI and MVAPICH), Open MPI's, Slurm's."""
_FAMILIES = {"openmpi": ("Open MPI",), "mpich": ("MPICH", "Intel(R) MPI", "MVAPICH")}
"""Libraries by words of their version."""


def _hosts_file(plan: LaunchPlan, folder: Path, line: str, option: str) -> list[str]:
    if not plan.hosts:
        return []
    text = "".join(line.format(name=host.name, slots=host.slots) + "\n" for host in plan.hosts)
    return [option, _write(folder, text)]


def _write(folder: Path, text: str) -> str:
    file = folder / "hosts"
    file.write_text(text, encoding="ascii")
    return str(file)


def mpi_library() -> str:
    """What the MPI of mpi4py says about itself, or why it cannot be loaded; empty without mpi4py."""
    return "" if find_spec("mpi4py") is None else _output_of([sys.executable, "-c", _LIBRARY_PROBE])


def find_mpi(library: str | None = None) -> MpiLauncher:
    """The launcher to use. Raises :class:`UsageError` that says what is missing or does not fit.

    ``library`` is what :func:`mpi_library` gives, if that is known.
    """
    if find_spec("mpi4py") is None:
        raise UsageError('MPI cannot be used: mpi4py is not installed. Install it with: pip install "ringlet[mpi]"')
    library = mpi_library() if library is None else library
    family = _family(library)
    if not family:
        last = (library.strip().splitlines() or ["nothing"])[-1]
        raise UsageError(
            f"MPI cannot be used: mpi4py does not load its MPI library. It says: {last[:300]}\n"
            f'Install an MPI that mpi4py was built for, or both with: pip install --force-reinstall "ringlet[mpi]"'
        )
    seen = []
    for path in _candidates():
        flavour = _flavour(_output_of([path, "--version"]))
        if flavour and family in FLAVOURS[flavour].families:
            return MpiLauncher(path, flavour, family)
        seen.append(f"{path} ({flavour or 'unknown'})")
    first = library.strip().splitlines()[0]
    found = f"found {', '.join(seen)}, which starts ranks of another MPI" if seen else "none was found"
    raise UsageError(
        f"MPI cannot be used: mpi4py uses {first[:80]}, and no mpiexec belongs to it: {found}.\n"
        f"Put the right mpiexec first in PATH or name it by {MPIEXEC_VARIABLE}, or install mpi4py for the MPI you have"
    )


def _candidates() -> Iterator[str]:
    """Programs in the order of trust: named by the user, beside the interpreter, of the cluster, in the PATH."""
    named = os.environ.get(MPIEXEC_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise UsageError(f"{MPIEXEC_VARIABLE}={named[:200]!r} is no program that can be run")
        yield found
        return
    names = ("mpiexec", "mpirun", "mpiexec.hydra")
    beside = str(Path(sys.executable).parent)
    cluster = ("srun",) if "SLURM_JOB_ID" in os.environ else ()
    places = [*((name, beside) for name in names), *((name, None) for name in (*cluster, *names))]
    paths = (shutil.which(name, path=place) for name, place in places)
    yield from dict.fromkeys(path for path in paths if path)


def _output_of(command: Sequence[str]) -> str:
    """What a program prints on both outputs; nothing if it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603  a list of words, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def _family(library_version: str) -> str:
    """Of an MPI library by its version string; empty if unknown."""
    matches = (family for family, words in _FAMILIES.items() if any(word in library_version for word in words))
    return next(matches, "")


def _flavour(version: str) -> str:
    """Of a program by what ``--version`` says; empty if unknown."""
    return next((name for name, flavour in FLAVOURS.items() if flavour.recognise(version)), "")


# -- which hosts answer -----------------------------------------------------------------------------------------------
def answering_hosts(
    hosts: Sequence[Host],
    launcher: MpiLauncher,
    environ: Mapping[str, str],
    *,
    seconds: float = PROBE_SECONDS,
    caught: Sequence[int] = (),
) -> tuple[Host, ...]:
    """Those of ``hosts`` that answer, in their order; this machine need not be asked. A signal ends the waiting."""
    nothing = [sys.executable, "-I", "-S", "-c", ""]
    return run_on_hosts(hosts, launcher, environ, nothing, seconds=seconds, caught=caught)


def run_on_hosts(
    hosts: Sequence[Host],
    launcher: MpiLauncher,
    environ: Mapping[str, str],
    command: Sequence[str],
    *,
    seconds: float = PROBE_SECONDS,
    caught: Sequence[int] = (),
) -> tuple[Host, ...]:
    """Run a short command on each of the other machines, and give the hosts where it succeeded; this machine counts."""
    probes = {host: _Probe(host, launcher, environ, command) for host in hosts if not host.is_this_machine}
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
    """A short command, started on one host."""

    def __init__(self, host: Host, launcher: MpiLauncher, environ: Mapping[str, str], words: Sequence[str]) -> None:
        self._folder = JobFolder()
        shared = {name: value for name, value in environ.items() if name not in environments.VARIABLES}
        command, extra = launcher.command(LaunchPlan(1, (Host(host.name),)), words, shared, Path(self._folder.path))
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

"""What computer and which software something was measured with: one description for reports, benchmarks, logs and
``ringlet doctor``.

Libraries are looked up, never imported.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringlet import __version__
from ringlet.launch.resources import total_bytes, usable_cores

LIBRARIES = ("numpy", "mpi4py", "torch", "keras", "tensorflow", "tensorflow-cpu", "jax")
"""Those that times depend on most."""


@dataclass(frozen=True)
class Machine:
    """A computer with its software; what the system does not say is empty or None."""

    processor: str
    cores: int
    """Those that this process may use."""
    all_cores: int
    memory_bytes: int | None
    load: float | None
    """Processes that were running or waiting for a core, on average over the last minute."""
    system: str
    release: str
    architecture: str
    python: str
    kernels: str
    """``compiled`` or ``reference``."""
    instruction_set: str
    versions: Mapping[str, str]
    """Of Ringlet and the libraries that are installed."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def facts(self) -> dict[str, str]:
        """Names and values for people, in the order in which they are shown."""
        libraries = {name: version for name, version in self.versions.items() if name != "ringlet"}
        facts = {
            "Processor": self.processor,
            "Cores": f"{self.cores} usable of {self.all_cores}",
            "Memory": "" if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.1f} GiB",
            "System": f"{self.system} {self.release}, {self.architecture}",
            "Python": self.python,
            "Ringlet": self.versions["ringlet"],
            "Kernels": {"compiled": "compiled (C++)", "reference": "reference (NumPy)"}[self.kernels],
            "Instruction set": self.instruction_set,
            "Libraries": ", ".join(f"{name} {version}" for name, version in libraries.items()),
        }
        return {name: value for name, value in facts.items() if value}

    def summary(self) -> str:
        """One line, with the libraries that are compared most."""
        known = ((name, self.versions.get(name)) for name in ("ringlet", "numpy", "torch"))
        versions = ", ".join(f"{name} {version}" for name, version in known if version)
        load = "" if self.load is None else f", load {self.load:.1f}"
        return f"{self.processor}, {self.cores} cores{load}; {versions}; kernels {self.kernels} {self.instruction_set}"


def describe_machine() -> Machine:
    """This machine, now."""
    kernels, instruction_set = _kernels()
    return Machine(
        processor=processor_name(),
        cores=usable_cores(),
        all_cores=os.cpu_count() or 1,
        memory_bytes=total_bytes(),
        load=_load(),
        system=platform.system(),
        release=platform.release(),
        architecture=platform.machine(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        kernels=kernels,
        instruction_set=instruction_set,
        versions={"ringlet": __version__, **versions(*LIBRARIES)},
    )


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(("model name", "hardware")))
    return next(filter(None, named), "") or platform.processor() or platform.machine()


def versions(*distributions: str) -> dict[str, str]:
    """The versions of those libraries that are installed."""
    from importlib import metadata

    found = {}
    for name in distributions:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def software_versions() -> dict[str, str]:
    """What runs and checkpoints note of the software that wrote them."""
    return {"ringlet": __version__, "python": platform.python_version(), **versions("numpy")}


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def _kernels() -> tuple[str, str]:
    """Which kernels can be used, and their instruction set."""
    from ringlet.errors import RingletError
    from ringlet.kernels import load

    try:
        kernels: Any = load("compiled")
    except RingletError:
        return "reference", ""
    return "compiled", str(kernels.instruction_set())

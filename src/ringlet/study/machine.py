"""What computer and which libraries figures were measured with. Libraries are looked up, never imported."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from ringlet import __version__
from ringlet.launch.resources import usable_cores

LIBRARIES = ("numpy", "mpi4py", "torch", "keras", "tensorflow", "tensorflow-cpu", "jax")


def describe_machine() -> dict[str, str]:
    """Names and values for people, in the order in which they are shown."""
    facts = {
        "Processor": processor_name(),
        "Cores": f"{usable_cores()} usable of {os.cpu_count() or 1}",
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Ringlet": __version__,
        **_kernels(),
    }
    versions = {name: _version(name) for name in LIBRARIES}
    facts["Libraries"] = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return {name: value for name, value in facts.items() if value}


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's own name, where the system tells it."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(("model name", "hardware")))
    return next(filter(None, named), "") or platform.processor() or platform.machine()


def _memory() -> str:
    try:
        num_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return ""
    return f"{num_bytes / 2**30:.1f} GiB"


def _kernels() -> dict[str, str]:
    from ringlet.errors import RingletError
    from ringlet.kernels import load

    try:
        kernels = load("compiled")
    except RingletError:
        return {"Kernels": "reference (NumPy)"}
    return {"Kernels": "compiled (C++)", "Instruction set": str(kernels.instruction_set())}  # type: ignore[attr-defined]


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""

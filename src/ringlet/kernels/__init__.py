"""The native engine's arithmetic, twice with one signature: ``reference`` (NumPy) and ``compiled`` (C++).

Takes arrays with the batch innermost, writes into arrays that the caller owns: see :mod:`ringlet.kernels.contract`.
:func:`load` picks an implementation: the argument, else ``RINGLET_KERNELS``, else the compiled one where it was built.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import cast

from ringlet.errors import KernelError, UnknownNameError
from ringlet.kernels.contract import Kernels

IMPLEMENTATIONS = ("compiled", "reference")
"""Names of the implementations, the preferred one first."""

ENVIRONMENT_VARIABLE = "RINGLET_KERNELS"
"""Names the implementation where :func:`load` is called without one; empty means no wish."""


def load(name: str | None = None) -> Kernels:
    """The kernels called ``name``; without a name those of ``RINGLET_KERNELS``, else the best available ones."""
    wanted = (name if name is not None else os.environ.get(ENVIRONMENT_VARIABLE, "")).strip().lower()
    if not wanted:
        return _load(available()[0])
    if wanted not in IMPLEMENTATIONS:
        kind = "kernels" if name is not None else f"kernels in {ENVIRONMENT_VARIABLE}"
        raise UnknownNameError(kind, wanted, IMPLEMENTATIONS)
    return _load(wanted)


@cache
def available() -> tuple[str, ...]:
    """The implementations that can be imported here, the preferred one first; never empty."""
    return tuple(name for name in IMPLEMENTATIONS if name == "reference" or _import_failure(name) is None)


@cache
def _load(name: str) -> Kernels:
    failure = _import_failure(name)
    if failure is not None:
        raise KernelError(
            f"the {name} kernels were asked for but cannot be imported ({failure}). "
            "Reinstall Ringlet where a C++20 compiler is there (pip install --force-reinstall --no-cache-dir ringlet) "
            f"or use the slower NumPy ones: {ENVIRONMENT_VARIABLE}=reference"
        )
    return Kernels() if name == "reference" else cast(Kernels, import_module(f"{__name__}.{name}"))


@cache
def _import_failure(name: str) -> str | None:
    """Why the implementation cannot be imported, or None if it can."""
    try:
        import_module(f"{__name__}.{name}")
    except ImportError as error:
        return str(error)
    return None

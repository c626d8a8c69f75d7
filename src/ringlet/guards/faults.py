"""Faults on purpose, for tests: ``RINGLET_FAULT="kill@rank=1,step=7,phase=update"`` ends rank 1 in its seventh update.

The code that trains says where it is: ``faults.reach("update", rank, step)``. Without the variable that is a function
which does nothing. Several faults are separated by semicolons. What is left out (rank, step, phase) matches everything.

======== ==============================================================================================================
kill     the process ends by SIGKILL
stop     the process is stopped by SIGSTOP
raise    :class:`InjectedFault` is raised, which is no error that a user can fix
exit     the process ends at once, without a word; ``code=`` (default 1)
hang     the process waits for ever, while its other threads run on
nan      an element of the array passed to ``reach`` becomes NaN; ``element=`` (default 0)
flip     one bit of that array changes; ``element=`` (default 0), ``bit=`` (default 0, the lowest)
======== ==============================================================================================================

``once=FILE``: only if FILE does not exist yet; it is created, so that a job that was started again gets past it.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ConfigError, UnknownNameError

VARIABLE = "RINGLET_FAULT"
KINDS = ("kill", "stop", "raise", "exit", "hang", "nan", "flip")
PHASES = ("start", "load", "forward", "backward", "reduce", "update", "save", "exit")
"""The places that a run passes, in order; ``save`` may come between steps."""
_NUMBERS = ("rank", "step", "code", "element", "bit")
_NEED_ARRAY = ("nan", "flip")


class InjectedFault(Exception):  # noqa: N818  it is named in tests, and is no user's error
    """The fault ``raise``."""


class Reach(Protocol):
    """How ``faults.reach`` is called."""

    def __call__(self, phase: str, rank: int, step: int, array: NDArray[Any] | None = None) -> None:
        """This rank is in ``phase`` of ``step`` (0 before the first); ``array`` is what may be damaged here."""


@dataclass(frozen=True)
class Fault:
    """One fault; None matches everything."""

    kind: str
    rank: int | None = None
    step: int | None = None
    phase: str | None = None
    code: int = 1
    element: int = 0
    bit: int = 0
    once: str | None = None

    def matches(self, phase: str, rank: int, step: int, array: NDArray[Any] | None) -> bool:
        """Whether it is to happen here. A fault of arrays waits for a place that offers one."""
        here = ((self.phase, phase), (self.rank, rank), (self.step, step))
        if any(wanted is not None and wanted != given for wanted, given in here):
            return False
        return array is not None or self.kind not in _NEED_ARRAY

    def claim(self) -> bool:
        """False if it has happened already, in this process or in another."""
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        return True

    def happen(self, where: str, array: NDArray[Any] | None) -> None:
        """Do it."""
        match self.kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "raise":
                raise InjectedFault(f"a fault that {VARIABLE} asked for, {where}")
            case "exit":
                os._exit(self.code)
            case "hang":
                Event().wait()
            case "nan":
                _element(array, self.element)[...] = np.nan
            case "flip":
                _element(array, self.element).view(np.uint8)[self.bit // 8] ^= 1 << self.bit % 8


def _element(array: NDArray[Any] | None, number: int) -> NDArray[Any]:
    """One element as an array of its own, a view."""
    assert array is not None
    return array.reshape(-1)[number : number + 1]


def parse(text: str) -> tuple[Fault, ...]:
    """The faults of a text as the variable has it."""
    return tuple(_parse_one(part.strip()) for part in text.split(";") if part.strip())


def _parse_one(text: str) -> Fault:
    kind, _, rest = text.partition("@")
    if kind not in KINDS:
        raise UnknownNameError(f"fault in {VARIABLE}", kind, KINDS)
    values: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        if key in _NUMBERS and value.isascii() and value.isdecimal():
            values[key] = int(value)
        elif (key == "phase" and value in PHASES) or (key == "once" and value):
            values[key] = value
        else:
            raise ConfigError(
                f"{VARIABLE}: '{pair}' in '{text}' is not understood. Expected {', '.join(_NUMBERS)} with a number, "
                f"phase ({', '.join(PHASES)}) or once=FILE"
            )
    if "once" in values:
        values["once"] = str(Path(values["once"]).absolute())
    return Fault(kind, **values)


def armed(faults: tuple[Fault, ...]) -> Reach:
    """A function that lets ``faults`` happen; one that does nothing if there are none."""
    if not faults:
        return _nothing

    def reach(phase: str, rank: int, step: int, array: NDArray[Any] | None = None) -> None:
        for fault in faults:
            if fault.matches(phase, rank, step, array) and fault.claim():
                fault.happen(f"on rank {rank} in phase '{phase}' of step {step}", array)

    return reach


def _nothing(phase: str, rank: int, step: int, array: NDArray[Any] | None = None) -> None:
    """No fault was asked for."""


reach: Reach = armed(parse(os.environ.get(VARIABLE, "")))
"""Call as ``faults.reach(…)``, never import the name: tests replace it."""

"""The state of a user's own training loop: named values that all ranks commit and restore together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.elastic import commits
from ringlet.elastic.commits import Commits
from ringlet.errors import CheckpointError, RingletError, UsageError


@final
class State:
    """Values by name, read and written as attributes: ``state.step += 1``.

    Values are NumPy arrays or what JSON has. Rank 0 writes and reads; so values should be the same on all ranks, or
    matter on rank 0 alone. Arrays are restored in place where shape and type allow it, so anyone who holds the same
    array sees it. Every rank must make the state and call its methods in the same order.
    """

    _values: dict[str, Any]
    _comm: Communicator
    _commits: Commits

    def __init__(
        self, directory: str | os.PathLike[str], /, *, communicator: Communicator | None = None, **values: Any
    ) -> None:
        """``directory`` is where commits go; ``communicator`` defaults to that of all ranks of the job."""
        if communicator is None:
            from ringlet.comm import world

            communicator = world.communicator()
        object.__setattr__(self, "_comm", communicator)
        object.__setattr__(self, "_commits", Commits(Path(directory)))
        object.__setattr__(self, "_values", {})
        for name, value in values.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise UsageError(f"'{name}' cannot be a name in a state: it is taken, choose another")
            commits.check(name, value)
            self._values[name] = value

    def commit(self) -> None:
        """Keep all values of rank 0 on disk; when this returns they are there, or the same error is raised on all."""
        problem = ""
        if self._comm.rank == 0:
            try:
                self._commits.write(self._values)
            except RingletError as error:
                problem = str(error)
        self._raise_on_all(problem)

    def restore(self) -> bool:
        """Take the values of the newest good commit, on all ranks; False, and nothing changes, if there is none."""
        problem, found = "", None
        if self._comm.rank == 0:
            try:
                found = self._commits.newest()
                self._check_names(found)
            except RingletError as error:
                problem = str(error)
        self._raise_on_all(problem)
        return self._take(found)

    def _check_names(self, found: dict[str, Any] | None) -> None:
        if found is not None and found.keys() != self._values.keys():
            raise CheckpointError(
                f"the commits in {self._commits.path} hold {_listed(found)}, this state has {_listed(self._values)}: "
                "give the same names, or another directory"
            )

    def _raise_on_all(self, problem: str) -> None:
        text = self._comm.broadcast_bytes(problem.encode() if self._comm.rank == 0 else None).decode()
        if text:
            raise CheckpointError(text)

    def _take(self, found: dict[str, Any] | None) -> bool:
        """Rank 0 hands out what it found: facts first, then array after array."""
        facts, arrays = commits.split(found or {})
        forms = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
        own = json.dumps([found is not None, facts, forms]).encode() if self._comm.rank == 0 else None
        is_found, facts, forms = json.loads(self._comm.broadcast_bytes(own))
        for name, (kind, shape) in forms.items():
            array = arrays.get(name, np.empty(0))
            arrays[name] = self._comm.broadcast(array if self._comm.rank == 0 else np.empty(shape, kind))
        for name, value in commits.join(facts, arrays).items():
            self._values[name] = _placed(self._values[name], value)
        return bool(is_found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"the state has no '{name}': it has {_listed(self.__dict__.get('_values', {}))}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._values:
            raise AttributeError(f"the state has no '{name}': it has {_listed(self._values)}. Name it in State(…)")
        commits.check(name, value)
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values})

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(value)}" for name, value in self._values.items())
        return f"State({str(self._commits.path)!r}, {', '.join(shown)})"


def _placed(old: Any, new: Any) -> Any:
    """``new``, in the memory of ``old`` where that is possible."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return new
    if old.shape != new.shape or old.dtype != new.dtype or not old.flags.writeable:
        return new
    np.copyto(old, new)
    return old


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array: NDArray[Any] = value
        return f"<array {array.shape} of {array.dtype}>"
    return repr(value)


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "nothing"

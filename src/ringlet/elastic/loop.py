"""The loop that survives failures, for every framework: it begins with the last commit, and again if collectives fail.

``ringlet.torch.elastic`` and ``ringlet.keras.elastic`` say what a state holds, how it is saved and how it is restored.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ringlet.comm.arrays import as_bytes
from ringlet.comm.contract import Array
from ringlet.elastic.store import open_store
from ringlet.named import (
    ArgumentsError,
    BrokenCollectivesError,
    CollectiveError,
    LostRankError,
    Reduction,
    Submission,
    session,
)
from ringlet.named.horovod import HostsUpdatedInterrupt

RESET_LIMIT = 3
"""How many failures in a row :func:`run` survives without progress in between."""
Result = TypeVar("Result")


class ElasticState:
    """What all states have. Subclasses say how to ``save``, ``restore`` and ``sync``; every rank must call these."""

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        """With a ``directory`` commits are also written there, by rank 0; see :mod:`ringlet.elastic.store`."""
        self._store = open_store(directory)
        self._reset_callbacks: list[Callable[[], None]] = []
        self._host_update: int | None = None
        self._num_commits = 0
        self._names: tuple[str, ...] = ()

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], None]]) -> None:
        """Functions to call before training resumes after a failure or a change of hosts."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Training is about to resume."""
        self._host_update = None
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int = 1) -> None:  # noqa: ARG002
        """Hosts have come or gone: the next commit interrupts training on all ranks. May be called by any thread."""
        self._host_update = int(update_res)

    def check_host_updates(self) -> None:
        """Raise :class:`HostsUpdatedInterrupt` on all ranks if any of them was told that hosts have changed."""
        collectives = session.collectives()
        told = np.array([self._host_update is not None], np.int32)
        name = collectives.default_name("check_host_updates")
        (anywhere,) = collectives.run(Submission("allreduce", name, (told,), op=Reduction.MAX))
        if anywhere[0]:
            self._host_update = None
            raise HostsUpdatedInterrupt

    def commit(self) -> None:
        """Save, also where it outlives the ranks if there is such a place, then look for changes of hosts."""
        self.save()
        self._num_commits += 1
        self.write()
        self.check_host_updates()

    def progress(self) -> Any:
        """Something that changes when a commit has brought training forward; by default every commit does."""
        return self._num_commits

    def save(self) -> None:
        """Keep a copy in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the last copy in memory."""
        raise NotImplementedError

    def sync(self) -> None:
        """What rank 0 has, on all ranks; kept as a copy."""
        raise NotImplementedError

    def reset(self) -> None:
        """For subclasses: the ranks may have changed."""

    def write(self) -> None:
        """Put the copy where it outlives the ranks, if there is such a place."""
        if self._store is not None:
            self._store.write(self.encoded)

    def load(self) -> bool:
        """Take the newest commit that outlived its ranks; False, and nothing changes, if there is none."""
        found = None if self._store is None else self._store.read()
        if found is None:
            return False
        self.take(found)
        return True

    def encoded(self) -> Mapping[str, Any]:
        """For subclasses: the copy in memory as values that :mod:`ringlet.elastic.commits` can keep, by name."""
        raise NotImplementedError

    def take(self, found: dict[str, Any]) -> None:
        """For subclasses: become what :meth:`encoded` gave, in this or an earlier process."""
        raise NotImplementedError

    # -- values by name, as attributes --------------------------------------------------------------------------------
    def _add_values(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if hasattr(self, name):
                raise ArgumentsError(f"'{name}' cannot be a value of the state: the name is taken, choose another")
            setattr(self, name, value)
        self._names = tuple(values)

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _assign(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


def digest(facts: Any, arrays: Sequence[Array]) -> str:
    """Differs if anything does."""
    hashed = hashlib.sha256(json.dumps(facts, default=repr, sort_keys=True).encode())
    for array in arrays:
        hashed.update(f"{array.dtype} {array.shape}".encode())
        hashed.update(as_bytes(array).data)
    return hashed.hexdigest()


def failed_collective(error: BaseException) -> CollectiveError | None:
    """The failed collective that an error is; None if it is something else, or a wrong argument."""
    return error if isinstance(error, CollectiveError) and not isinstance(error, ArgumentsError) else None


def run(
    func: Callable[..., Result],
    reset_limit: int = RESET_LIMIT,
    cause: Callable[[BaseException], CollectiveError | None] = failed_collective,
) -> Callable[..., Result]:
    """Decorates ``func(state, …)``: it begins with what was last committed, and again when collectives fail.

    Failures restore the last commit. After ``reset_limit`` failures in a row it gives up; a commit that has brought
    training forward begins the count again. A change of hosts keeps the state as it is. If a rank is lost, the others
    end too: only a job that is started again can resume (``ringlet run --restarts``). ``cause`` finds the failed
    collective behind an error.
    """

    @wraps(func)
    def wrapper(state: ElasticState, *args: Any, **kwargs: Any) -> Result:
        session.init()
        state.load()
        must_sync, num_failures, reached = True, 0, None
        while True:
            try:
                if must_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HostsUpdatedInterrupt as interrupt:
                must_sync = not interrupt.skip_sync
            except Exception as error:
                failed = cause(error)
                if failed is None:
                    raise
                if isinstance(failed, LostRankError | BrokenCollectivesError):
                    raise failed from None
                before, reached = reached, state.progress()
                num_failures = num_failures + 1 if reached == before else 1
                if num_failures > reset_limit:
                    raise
                state.restore()
                must_sync = True
            state.on_reset()

    return wrapper

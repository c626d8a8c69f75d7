"""Where the commits of an elastic state go: a directory that program or user name, or the folder of a supervised job.

``ringlet run --restarts N`` gives its job a folder that outlives the ranks, in the shared memory of each machine where
there is one. So programs that know nothing of it resume from their last commit when all ranks are started again. The
first rank of every machine writes there: whichever machines are left have the newest commit.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from ringlet.comm import world
from ringlet.elastic.commits import Commits
from ringlet.errors import CheckpointError, RingletError, UsageError
from ringlet.launch.commit_folder import places
from ringlet.launch.restarts import COMMITS_VARIABLE, JOB_COMMITS_VARIABLE
from ringlet.named import session

_SAY = logging.getLogger("ringlet").warning

Values = Mapping[str, Any]
_num_states = 0


class Store(ABC):
    """Keeps commits. Every rank must call its methods."""

    @abstractmethod
    def write(self, make: Callable[[], Values]) -> None:
        """Keep what ``make`` gives."""

    @abstractmethod
    def read(self) -> dict[str, Any] | None:
        """The newest commit, the same on every rank; None if there is none."""


def open_store(directory: str | os.PathLike[str] | None) -> Store | None:
    """The store of a new state; None if its commits stay in memory. States are made in the same order on all ranks."""
    global _num_states
    _num_states += 1
    if directory is not None:
        return DirectoryStore(Path(directory))
    name = f"state-{_num_states}"
    if named := os.environ.get(COMMITS_VARIABLE):
        return DirectoryStore(Path(named) / name)
    folder = os.environ.get(JOB_COMMITS_VARIABLE)
    return JobStore(Path(folder), name) if folder else None


@final
class DirectoryStore(Store):
    """A directory that rank 0 writes to and reads from; what goes wrong there is raised on all ranks."""

    def __init__(self, path: Path) -> None:
        self._commits = Commits(path)

    def write(self, make: Callable[[], Values]) -> None:
        """Returns when the commit is there."""
        self._on_rank_0(lambda: self._commits.write(make()))

    def read(self) -> dict[str, Any] | None:
        """By rank 0, for all."""
        found: dict[str, Any] | None = self._on_rank_0(self._commits.newest)
        return found

    def _on_rank_0(self, work: Callable[[], Any]) -> Any:
        result, problem = None, ""
        if session.collectives().rank == 0:
            try:
                result = work()
            except RingletError as error:
                problem = str(error)
        problem, result = session.broadcast_object([problem, result], 0)
        if problem:
            raise CheckpointError(problem)
        return result


@final
class JobStore(Store):
    """The folder of a supervised job, on each machine; what goes wrong there is reported and does not end the job."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folders = places(folder)
        self._commits = [Commits(path / name, kept=1) for path in self._folders]
        self._number = 0
        self._has_warned = False

    def write(self, make: Callable[[], Values]) -> None:
        """Returns when the commit is there, on the ranks that write."""
        self._number += 1
        if world.local_rank() == 0:
            self._write(make)

    def read(self) -> dict[str, Any] | None:
        """What any machine has."""
        number, values = self._newest() if world.local_rank() == 0 else (0, None)
        collectives = session.collectives()
        numbers = collectives.allgather_object(number)
        self._number = max(numbers)
        if not self._number:
            return None
        owner = collectives.ranks[numbers.index(self._number)]
        found: dict[str, Any] = collectives.broadcast_object(values, owner)
        return found

    def _write(self, make: Callable[[], Values]) -> None:
        problems = []
        try:
            values = make()
            for folder, commits in zip(self._folders, self._commits, strict=True):
                try:
                    _make_private(folder)
                    commits.write(values, self._number)
                except CheckpointError as error:
                    problems.append(str(error))
                else:
                    return
        except (UsageError, NotImplementedError) as error:
            problems.append(str(error) or "it does not say what to keep")
        if not self._has_warned:
            self._has_warned = True
            _SAY("a commit of this state could not be kept for restarts: %s", "; ".join(dict.fromkeys(problems)))

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        found: tuple[int, dict[str, Any] | None] = (0, None)
        for commits in self._commits:
            try:
                found = max(found, commits.find() or (0, None), key=lambda commit: commit[0])
            except CheckpointError as error:
                _SAY("%s", error)
        return found


def _make_private(folder: Path) -> None:
    """The launcher has made it on its own machine; on others the first commit does. It must belong to this user."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise CheckpointError(f"cannot make {folder}: {error.strerror}") from None
    if folder.is_symlink() or status.st_uid != os.geteuid():
        raise CheckpointError(f"{folder} belongs to someone else")

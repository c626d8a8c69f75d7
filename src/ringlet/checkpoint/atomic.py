"""Directories that are there completely or not at all, with a manifest that holds the hash of every file.

Written beside their final name as ``.<name>.partial-<random>``: every file written and synchronised, the manifest last,
the directory synchronised, renamed, its parent synchronised. A crash at any moment leaves the old state or the new one,
and perhaps a partial directory, which :func:`remove_partials` recognises and removes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast, final

from ringlet.checkpoint.manifest import MANIFEST, FileFacts, serialise
from ringlet.errors import CheckpointError, RingletError
from ringlet.io.disk import FULL, explain, synchronise, try_lock

SPARE_BYTES = 1 << 16
"""What headers, the manifest and the directory itself may need besides the tensors."""
MAX_WRITE = 4 << 20
_PARTIAL = re.compile(r"\.(?P<name>.+)\.partial-[0-9a-f]{12}")
UNKNOWN_OWNER_SECONDS = 3600.0
"""Where the file system has no locks, partial directories are left alone for this long."""


Content = bytes | Callable[[BinaryIO], object]


@final
class LocalDirectories:
    """Hashed directories in a folder of this machine, by their names; ``remote`` has the same for object stores.

    Errors of the storage are OSErrors, unless told otherwise.
    """

    def __init__(self, place: Path) -> None:
        self.place = place

    def names(self, is_target: Callable[[str], bool]) -> list[str]:
        """Those whose names are those of targets."""
        try:
            return [path.name for path in self.place.iterdir() if is_target(path.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def about(self, name: str) -> tuple[int, float]:
        """Bytes of all files, and when it was written in seconds since 1970."""
        path = self.place / name
        status = path.lstat()
        files = os.scandir(path) if stat.S_ISDIR(status.st_mode) else ()
        return sum(file.stat(follow_symlinks=False).st_size for file in files), status.st_mtime

    @contextmanager
    def opened(self, name: str, *, manifest_only: bool = False) -> Iterator[Path]:  # noqa: ARG002
        """Within: a directory of this machine with its files, not verified; CheckpointError if it cannot be had."""
        yield self.place / name

    def prepare(self, is_target: Callable[[str], bool], known: Callable[[str], bool]) -> list[str]:
        """Make the place, and remove what dead writers left; gives what had to be left alone, and why."""
        make_directory(self.place)
        return remove_partials(self.place, is_target, known)

    def write(self, name: str, files: Mapping[str, Content], facts: Mapping[str, Any], *, num_bytes: int = 0) -> None:
        """Add one, see :func:`write_directory`; CheckpointError if that is not possible."""
        write_directory(self.place / name, files, facts, num_bytes=num_bytes)

    def rename(self, name: str, new_name: str) -> None:
        """Give one another name."""
        (self.place / name).rename(self.place / new_name)

    def remove(self, name: str, known: Callable[[str], bool]) -> str | None:
        """Remove one, see :func:`remove_directory`."""
        problem = remove_directory(self.place / name, known)
        synchronise(self.place)
        return problem

    def move(self, names: Sequence[str], target: Path) -> None:
        """Move some, in this order, into a folder of this machine."""
        for name in names:
            (self.place / name).rename(target / name)
        synchronise(target)
        synchronise(self.place)


# -- writing ----------------------------------------------------------------------------------------------------------
def write_directory(
    target: Path, files: Mapping[str, Content], facts: Mapping[str, Any], *, num_bytes: int = 0
) -> dict[str, FileFacts]:
    """Make ``target`` with ``files`` and a manifest of ``facts`` (JSON), durably; returns size and hash of each file.

    ``target`` must not exist, its parent must. A callable content gets a stream to write to and may write from
    memoryviews without a copy. ``num_bytes`` is about what the files need: it is compared with the free space first.
    Whatever goes wrong is a :class:`CheckpointError`, and nothing new is left.
    """
    with _explained(target, num_bytes + SPARE_BYTES):
        _require_space(target.parent, num_bytes)
        partial = partial_name(target)
        partial.mkdir()
        try:
            with _locked(partial):
                written = {name: _write_file(partial / name, content) for name, content in files.items()}
                _write_file(partial / MANIFEST, serialise(facts, written))
                synchronise(partial)
                if target.is_symlink() or target.exists():
                    raise FileExistsError(errno.EEXIST, "exists already", str(target))
                partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        synchronise(target.parent)
    return written


def partial_name(target: Path) -> Path:
    """What a directory is called before it is complete."""
    return target.with_name(f".{target.name}.partial-{secrets.token_hex(6)}")


def make_directory(path: Path) -> None:
    """Make ``path`` and its missing parents, durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with _explained(path, SPARE_BYTES):
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            synchronise(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", str(path))


class _HashingStream:
    """Writes everything it is given to a file, all of it, and hashes it on the way."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._hash, self._size = descriptor, hashlib.sha256(), 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Write from the buffer itself, in parts; hashing and writing release the interpreter's lock."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), MAX_WRITE):
            part = view[start : start + MAX_WRITE]
            self._hash.update(part)
            while part:
                part = part[os.write(self._descriptor, part) :]
        self._size += len(view)
        return len(view)

    def facts(self) -> FileFacts:
        """What was written."""
        return FileFacts(self._size, self._hash.hexdigest())


def _write_file(path: Path, content: Content) -> FileFacts:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        stream = _HashingStream(descriptor)
        if isinstance(content, bytes):
            stream.write(content)
        else:
            content(cast(BinaryIO, stream))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return stream.facts()


# -- what goes wrong --------------------------------------------------------------------------------------------------
def _require_space(parent: Path, num_bytes: int) -> None:
    if num_bytes > shutil.disk_usage(parent).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(parent))


@contextmanager
def _explained(target: Path, num_bytes: int) -> Iterator[None]:
    """Turn errors into CheckpointErrors; a full disk is told with needed and free bytes."""
    try:
        yield
    except (OSError, RingletError) as error:
        hint = ". Older ones are intact. Make room, or keep fewer" if getattr(error, "errno", 0) in FULL else ""
        raise CheckpointError(f"cannot write {target}: {explain(error, target, num_bytes)}{hint}") from error


# -- leftovers --------------------------------------------------------------------------------------------------------
def remove_directory(path: Path, known: Callable[[str], bool]) -> str | None:
    """Remove a directory of regular files whose names are all ``known``; otherwise leave it and say why not.

    It gets a partial's name first, so a crash midway leaves nothing that looks whole.
    """
    problem = foreign_content(path, known)
    if problem is not None:
        return problem
    doomed = path
    if _PARTIAL.fullmatch(path.name) is None:
        doomed = partial_name(path)
        path.rename(doomed)
    for file in doomed.iterdir():
        file.unlink()
    doomed.rmdir()
    return None


def foreign_content(path: Path, known: Callable[[str], bool]) -> str | None:
    """What in ``path`` is not a regular file with a ``known`` name."""
    if path.is_symlink() or not path.is_dir():
        return "it is not a directory of its own"
    with os.scandir(path) as entries:
        foreign = sorted(
            entry.name for entry in entries if not (entry.is_file(follow_symlinks=False) and known(entry.name))
        )
    return f"it holds {foreign[0]!a}, which does not belong there" if foreign else None


def remove_partials(parent: Path, is_target: Callable[[str], bool], known: Callable[[str], bool]) -> list[str]:
    """Remove what dead writers left of targets in ``parent``; returns what had to be left alone, and why."""
    remarks = []
    for path in sorted(parent.iterdir()):
        match = _PARTIAL.fullmatch(path.name)
        if match is None or not is_target(match["name"]) or path.is_symlink() or _in_use(path):
            continue
        try:
            problem = remove_directory(path, known)
        except OSError as error:
            problem = explain(error, path)
        if problem is not None:
            remarks.append(f"{path} was left alone: {problem}")
    return remarks


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a lock that ends with this process, where the file system has such locks."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _in_use(partial: Path) -> bool:
    """Whether a writer still works on it."""
    try:
        descriptor = os.open(partial, os.O_RDONLY)
    except OSError:
        return False
    try:
        free = try_lock(descriptor)
        return time.time() - partial.stat().st_mtime < UNKNOWN_OWNER_SECONDS if free is None else not free
    finally:
        os.close(descriptor)

"""Hashed directories in an object store: complete as soon as their manifest is there, which is sent last.

Nothing can be renamed there. A writer that dies leaves files without a manifest: readers ignore them, and a later
writer removes them when they are an hour old, since no lock tells whether someone is still at work.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from ringlet.checkpoint.atomic import UNKNOWN_OWNER_SECONDS, Content, partial_name, write_directory
from ringlet.checkpoint.manifest import MANIFEST, FileFacts, parse, readable
from ringlet.errors import CheckpointError
from ringlet.io import jsontext
from ringlet.io.disk import synchronise
from ringlet.io.storage import Address, FileInfo, open_location


@final
class RemoteDirectories:
    """The directories at an address; see :class:`ringlet.checkpoint.atomic.LocalDirectories`."""

    def __init__(self, place: Address) -> None:
        self.place = place
        self._storage = open_location(place)

    def names(self, is_target: Callable[[str], bool]) -> list[str]:
        """Those with a manifest."""
        listed = self._storage.list()
        wanted = [name for name, info in listed.items() if info.is_folder and is_target(name)]
        return [name for name in wanted if MANIFEST in self._storage.list(name)]

    def about(self, name: str) -> tuple[int, float]:
        """Bytes of all files, and when the manifest was written."""
        files = self._files(name)
        return sum(info.num_bytes for info in files.values()), files[MANIFEST].time or 0.0

    @contextmanager
    def opened(self, name: str, *, manifest_only: bool = False) -> Iterator[Path]:
        """A copy on this machine for as long as the block runs: what the manifest names, with the sizes it tells."""
        with TemporaryDirectory(prefix="ringlet-checkpoint-") as folder:
            directory = Path(folder) / name
            directory.mkdir()
            with readable():
                listed = self._files(name)
                raw = self._storage.read(f"{name}/{MANIFEST}", jsontext.MAX_CHARACTERS)
                (directory / MANIFEST).write_bytes(raw)
                for file, facts in ({} if manifest_only else parse(raw).files).items():
                    self._fetch(directory, file, facts, listed.get(file))
            yield directory

    def _fetch(self, directory: Path, file: str, facts: FileFacts, info: FileInfo | None) -> None:
        if info is None:
            return  # the reader of the copy will miss it
        if info.num_bytes != facts.size:
            raise CheckpointError(f"{file} has {info.num_bytes:,} bytes, the manifest says {facts.size:,}")
        self._storage.fetch(f"{directory.name}/{file}", directory / file, info.num_bytes)

    def prepare(self, is_target: Callable[[str], bool], known: Callable[[str], bool]) -> list[str]:
        """Remove what dead writers left; gives what had to be left alone, and why."""
        remarks = []
        for name, info in self._storage.list().items():
            if not info.is_folder or not is_target(name):
                continue
            listed = self._storage.list(name)
            newest = max((file.time or time.time() for file in listed.values()), default=time.time())
            if MANIFEST in listed or time.time() - newest < UNKNOWN_OWNER_SECONDS:
                continue
            problem = self.remove(name, known)
            if problem is not None:
                remarks.append(f"{self.place / name} was left alone: {problem}")
        return remarks

    def write(self, name: str, files: Mapping[str, Content], facts: Mapping[str, Any], *, num_bytes: int = 0) -> None:
        """Write a directory on this machine first, then send its files, the manifest last."""
        with TemporaryDirectory(prefix="ringlet-checkpoint-") as folder:
            draft = Path(folder) / name
            written = write_directory(draft, files, facts, num_bytes=num_bytes)
            try:
                for file in files:
                    self._storage.put(draft / file, f"{name}/{file}")
                self._check_sent(name, written)
                self._storage.put(draft / MANIFEST, f"{name}/{MANIFEST}")
            except BaseException as error:
                with suppress(OSError):
                    self._delete(name, [MANIFEST, *files])
                if not isinstance(error, OSError):
                    raise
                raise CheckpointError(f"cannot write {self.place / name}: {error.strerror or error}") from error

    def _check_sent(self, name: str, written: Mapping[str, FileFacts]) -> None:
        listed = self._storage.list(name)
        for file, facts in written.items():
            if file not in listed or listed[file].num_bytes != facts.size:
                found = f"{listed[file].num_bytes:,}" if file in listed else "no"
                raise OSError(errno.EIO, f"{file} has {found} bytes there, {facts.size:,} were sent")

    def rename(self, name: str, new_name: str) -> None:
        """Copy and remove; both are complete for a moment."""
        files = self._files(name)
        for file in sorted(files, key=MANIFEST.__eq__):
            self._storage.copy(f"{name}/{file}", f"{new_name}/{file}")
        self._delete(name, files)

    def remove(self, name: str, known: Callable[[str], bool]) -> str | None:
        """Remove one whose files are all ``known``; otherwise leave it and say why not."""
        listed = self._storage.list(name)
        foreign = sorted(file for file, info in listed.items() if info.is_folder or not known(file))
        if foreign:
            return f"it holds {foreign[0]!a}, which does not belong there"
        self._delete(name, list(listed))
        return None

    def move(self, names: Sequence[str], target: Path) -> None:
        """Bring some to a folder of this machine, one after the other."""
        for name in names:
            files, partial = self._files(name), partial_name(target / name)
            partial.mkdir()
            try:
                for file, info in files.items():
                    self._storage.fetch(f"{name}/{file}", partial / file, info.num_bytes)
                    synchronise(partial / file)
                partial.rename(target / name)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            synchronise(target)
            self._delete(name, files)

    def _files(self, name: str) -> dict[str, FileInfo]:
        """The files of a complete directory."""
        files = {file: info for file, info in self._storage.list(name).items() if not info.is_folder}
        if MANIFEST not in files:
            raise FileNotFoundError(errno.ENOENT, f"{MANIFEST} is missing", str(self.place / name))
        return files

    def _delete(self, name: str, files: Sequence[str] | Mapping[str, Any]) -> None:
        """The manifest first: what is left after a crash looks incomplete."""
        for file in sorted(files, key=MANIFEST.__ne__):
            self._storage.delete(f"{name}/{file}")
        self._storage.delete_folder(name)

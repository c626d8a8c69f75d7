"""The cache on disk: published data sets that were fetched, and files of object stores that were used.

It is ``RINGLET_CACHE``, else ``XDG_CACHE_HOME/ringlet``, else ``~/.cache/ringlet``. Loaders work with paths. So a data
set at ``s3://bucket/pets`` is a path too, ``remote/s3/bucket/pets`` in the cache, whose folders are those of the object
store, and whose files come when they are first read (:class:`RemotePath`). One that came is used again for as long as
the store lists it with the same size and tag.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Generator
from pathlib import Path, PosixPath
from typing import Any, final

from ringlet.errors import DataError
from ringlet.io.disk import replacing
from ringlet.io.storage import Address, FileInfo, Storage, open_location, place_of

_FOLDER = FileInfo(is_folder=True)


def cache_directory(override: Path | str | None = None) -> Path:
    """The cache directory; it need not exist yet."""
    if override is not None:
        return Path(override)
    if own := os.environ.get("RINGLET_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "ringlet"
    try:
        return Path.home() / ".cache" / "ringlet"
    except RuntimeError as error:
        raise DataError("no home directory for the data cache: set RINGLET_CACHE to a folder") from error


def dataset_directory(name: str, override: Path | str | None = None) -> Path:
    """Where the files of a fetched data set are."""
    return cache_directory(override) / "datasets" / name


# -- files of object stores -------------------------------------------------------------------------------------------
def located(location: str | os.PathLike[str] | Address) -> Path:
    """A path as it is; an address as a path in the cache, with what the object store has there now."""
    place = place_of(location)
    if isinstance(place, Path):
        return location if isinstance(location, Path) else place
    in_bucket = "/" in place.url.partition("://")[2]
    top = place.parent if in_bucket else place  # masks may lie beside a folder, and weights beside a file
    parts = [part for part in re.split("[:/]+", str(top)) if part not in ("", ".", "..")]
    root = cache_directory().absolute().joinpath("remote", *parts)
    _MIRRORS[str(root)] = _Mirror(open_location(top))
    return RemotePath(root / place.name if in_bucket else root)


@final
class RemotePath(PosixPath):
    """A path in the cache that stands for one of an object store: to look at a file's size or content brings it here.

    An object store that cannot be listed is a DataError, a file that cannot be had an OSError, as any other file's.
    """

    def exists(self, **_: Any) -> bool:
        """Whether the object store has it."""
        return self._info() is not None

    def is_dir(self, **_: Any) -> bool:
        """Whether it is a folder there."""
        info = self._info()
        return info is not None and info.is_folder

    def is_file(self, **_: Any) -> bool:
        """Whether it is a file there."""
        info = self._info()
        return info is not None and not info.is_folder

    def iterdir(self) -> Generator[RemotePath, None, None]:
        """What is directly in a folder there."""
        mirror, name = self._place()
        yield from (self / child for child in mirror.list(name))

    def glob(self, pattern: str, **_: Any) -> Generator[RemotePath, None, None]:
        """What is directly in a folder there and fits."""
        if "/" in pattern or "**" in pattern:
            raise NotImplementedError(f"'{pattern}' in an object store")
        yield from (path for path in self.iterdir() if path.match(pattern))

    def rglob(self, pattern: str, **_: Any) -> Generator[RemotePath, None, None]:
        """What is anywhere beneath a folder there and fits."""
        yield from self.glob(pattern)
        for folder in self.iterdir():
            yield from folder.rglob(pattern) if folder.is_dir() else ()

    def stat(self, **options: Any) -> os.stat_result:
        """Of the file, which is then here."""
        return self.fetched().stat(**options)

    def open(self, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """The file, which is then here."""
        return self.fetched().open(mode, *arguments, **options)

    def fetched(self) -> Path:
        """The same path, with its file."""
        here, (mirror, name), info = Path(self), self._place(), self._info()
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "no such file in the object store", self.address)
        if info.is_folder:
            raise IsADirectoryError(errno.EISDIR, "is a folder of the object store", self.address)
        if not _is_current(here, info):
            here.parent.mkdir(parents=True, exist_ok=True)
            with replacing(here, durable=False) as draft:
                mirror.storage.fetch(name, draft, info.num_bytes)
                os.utime(draft, (_stamp(info), _stamp(info)))
        return here

    @property
    def address(self) -> str:
        """Where it is in truth."""
        mirror, name = self._place()
        return mirror.address(name)

    def _info(self) -> FileInfo | None:
        mirror, name = self._place()
        folder, _, child = name.rpartition("/")
        return mirror.list(folder).get(child) if name else _FOLDER

    def _place(self) -> tuple[_Mirror, str]:
        """The nearest object store above, and the name there."""
        root = next(path for path in (Path(self), *Path(self).parents) if str(path) in _MIRRORS)
        name = Path(self).relative_to(root).as_posix()
        return _MIRRORS[str(root)], "" if name == "." else name


class _Mirror:
    """An object store and what was seen of it: a data set does not change under a run."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._folders: dict[str, dict[str, FileInfo]] = {}

    def address(self, name: str) -> str:
        """Of a file or folder; the empty name is all of it."""
        return str(self.storage.place / name if name else self.storage.place)

    def list(self, folder: str) -> dict[str, FileInfo]:
        """What is in a folder, asked for once."""
        if folder not in self._folders:
            where = self.address(folder)
            try:
                found = self.storage.list(folder)
            except OSError as error:
                raise DataError(f"cannot read {where}: {error.strerror or error}. Check the address.") from error
            if wrong := sorted(name for name in found if name in (".", "..") or "\0" in name):
                raise DataError(f"{where} holds {wrong[0]!a}, which cannot be the name of a file: refused")
            self._folders[folder] = found
        return self._folders[folder]


_MIRRORS: dict[str, _Mirror] = {}
"""By the folder of the cache."""


def _is_current(path: Path, info: FileInfo) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, int(status.st_mtime)) == (info.num_bytes, _stamp(info))


def _stamp(info: FileInfo) -> int:
    """The time of change that a fetched file is given: it tells which version of the file it is."""
    return int.from_bytes(hashlib.sha256(info.tag.encode()).digest()[:4], "little") >> 1

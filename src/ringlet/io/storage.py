"""Where files are kept: paths of this machine, or object stores by addresses such as ``s3://bucket/run``.

:func:`place_of` tells which, :func:`open_location` gives the files there. Files of this machine are replaced by a
rename and are then on disk (:mod:`ringlet.io.disk`). In an object store a file is there when it was sent completely;
nothing can be renamed, so what consists of several files is complete when the one that is sent last is there. Object
stores are reached by fsspec, imported when an address is used. Whatever goes wrong with files is an ``OSError``.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, final
from urllib.parse import unquote, urlsplit

from ringlet.errors import UsageError
from ringlet.io.disk import replacing, synchronise
from ringlet.libraries import require

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)(.*)", re.DOTALL)
_CHUNK = 1 << 20
_WITH_FOLDERS = ("local", "sftp", "ssh", "ftp", "smb", "hdfs", "webhdfs", "arrow_hdfs", "dbfs")
"""What reaches file systems, where a file must have its folder."""
_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "mtime", "LastModified", "last_modified", "updated", "created")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "timeCreated", "created")
"""What file systems call the version of a file, and when it was written."""


@dataclass(frozen=True)
class Address:
    """A place that is not on this machine; as text without a password."""

    url: str

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        """What it is in."""
        return Address(self.url.rpartition("/")[0])

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url}/{name}")

    def __str__(self) -> str:
        return re.sub(r"//[^/@]*:[^/@]*@", "//***@", self.url)


Place = Path | Address


def place_of(location: str | os.PathLike[str] | Address) -> Place:
    """A path or a ``file://`` address as a path, any other address as such.

    Paths may come from command lines that took an address for one, which costs it a slash: ``s3:/bucket``.
    """
    if isinstance(location, Address):
        return location
    text = os.fspath(location)
    match = _ADDRESS.fullmatch(text)
    if match is None or (not match[2] and (isinstance(location, str) or Path(text).exists())):
        return Path(text)
    scheme, rest = match[1].lower(), match[3]
    if scheme != "file":
        return Address(f"{scheme}://{rest.rstrip('/')}")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"'{text}' names a file of host '{parts.netloc}': expected file:///PATH")
    return Path(unquote(parts.path))


@dataclass(frozen=True)
class FileInfo:
    """What a listing tells of a file or folder."""

    num_bytes: int = 0
    is_folder: bool = False
    tag: str = ""
    """Changes with the content, as far as the storage can tell."""
    time: float | None = None
    """When it was written, in seconds since 1970."""


class Storage(Protocol):
    """The files at a place; names are relative to it, with ``/`` between folders."""

    @property
    def place(self) -> Place:
        """Where that is."""

    def list(self, folder: str = "") -> dict[str, FileInfo]:
        """What is directly in a folder, by name; nothing if there is no such folder."""

    def read(self, name: str, max_bytes: int) -> bytes:
        """The content of a small file; one that has more is an error."""

    def fetch(self, name: str, target: Path, num_bytes: int) -> None:
        """Make ``target`` a copy of a file that was listed with so many bytes; completely or not at all."""

    def put(self, source: Path, name: str) -> None:
        """Make a complete file of this machine the file ``name``. The source may be gone then."""

    def copy(self, name: str, new_name: str) -> None:
        """Make another file like it."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def delete_folder(self, name: str) -> None:
        """Remove an empty folder, where there is such a thing; one that is not empty stays."""


def open_location(location: str | os.PathLike[str] | Address) -> Storage:
    """The files at a path or address; UsageError if what reaches them is not installed."""
    place = place_of(location)
    return _LocalStorage(place) if isinstance(place, Path) else _RemoteStorage(place)


@final
class _LocalStorage:
    """A folder of this machine."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def list(self, folder: str = "") -> dict[str, FileInfo]:
        try:
            with os.scandir(self.place / folder) as entries:
                found = [(entry.name, entry.is_dir(), entry.stat()) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {
            name: FileInfo(0, is_folder=True, time=status.st_mtime)
            if is_folder
            else FileInfo(status.st_size, tag=str(status.st_mtime_ns), time=status.st_mtime)
            for name, is_folder, status in found
        }

    def read(self, name: str, max_bytes: int) -> bytes:
        with (self.place / name).open("rb") as file:
            return _read(file, max_bytes, name)

    def fetch(self, name: str, target: Path, num_bytes: int) -> None:
        with (self.place / name).open("rb") as file:
            _copy(file, target, num_bytes, name)

    def put(self, source: Path, name: str) -> None:
        target = self.place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        synchronise(source)
        try:
            source.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with replacing(target) as draft:
                shutil.copyfile(source, draft)
        synchronise(target.parent)

    def copy(self, name: str, new_name: str) -> None:
        (self.place / new_name).parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.place / new_name) as draft:
            shutil.copyfile(self.place / name, draft)

    def delete(self, name: str) -> None:
        (self.place / name).unlink(missing_ok=True)

    def delete_folder(self, name: str) -> None:
        with suppress(OSError):
            (self.place / name).rmdir()


@final
class _RemoteStorage:
    """A folder of any file system that fsspec reaches."""

    def __init__(self, place: Address) -> None:
        self.place = place
        self._fs, base = _open_file_system(place)
        self._base = base.rstrip("/")

    def list(self, folder: str = "") -> dict[str, FileInfo]:
        """What was known before is not believed."""
        path = self._path(folder)
        with self._explained():
            try:
                self._fs.invalidate_cache(path)
                entries = self._fs.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return {}
        names = ((entry["name"].rstrip("/").rpartition("/")[2], entry) for entry in entries)
        own = path.rpartition("/")[2]
        return {
            name: _info(entry)
            for name, entry in names
            if name and not (name == own and entry["name"].strip("/") == path.strip("/"))  # a file, or a mark of S3's
        }

    def read(self, name: str, max_bytes: int) -> bytes:
        with self._explained(), self._fs.open(self._path(name), "rb") as file:
            return _read(file, max_bytes, name)

    def fetch(self, name: str, target: Path, num_bytes: int) -> None:
        with self._explained(), self._fs.open(self._path(name), "rb") as file:
            _copy(file, target, num_bytes, name)

    def put(self, source: Path, name: str) -> None:
        with self._explained():
            self._make_folder_of(name)
            self._fs.put_file(str(source), self._path(name))

    def copy(self, name: str, new_name: str) -> None:
        with self._explained():
            self._make_folder_of(new_name)
            self._fs.cp_file(self._path(name), self._path(new_name))

    def delete(self, name: str) -> None:
        with self._explained(), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def delete_folder(self, name: str) -> None:
        with suppress(OSError), self._explained():
            self._fs.rmdir(self._path(name))

    def _make_folder_of(self, name: str) -> None:
        """Where files need one; in an object store this might make a bucket of a typing error."""
        if self.place.url.partition(":")[0] in _WITH_FOLDERS:
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._base, name) if part)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Whatever the libraries of object stores raise becomes an OSError with words."""
        try:
            yield
        except OSError as error:
            if error.strerror:
                raise
            raise type(error)(error.errno or errno.EIO, str(error) or type(error).__name__) from error
        except Exception as error:  # of many libraries, with classes of their own
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error


def _open_file_system(place: Address) -> tuple[Any, str]:
    """The file system of an address and the path there."""
    library: Any = require("fsspec")
    scheme = place.url.partition(":")[0]
    try:
        file_system, path = library.core.url_to_fs(place.url)
    except ImportError as error:
        known: Mapping[str, Any] = require("fsspec.registry").known_implementations
        package = str(known.get(scheme, {}).get("class", scheme)).partition(".")[0]
        wanted = f'"fsspec[{scheme}]"' if package == "fsspec" else package
        raise UsageError(f"'{scheme}://' cannot be used ({error}). Install it with: pip install {wanted}") from error
    except ValueError as error:
        raise UsageError(
            f"'{place}' is no place for files ({error}): expected a path, or an address such as s3://BUCKET/NAME, "
            "gs://BUCKET/NAME or another of fsspec's"
        ) from error
    return file_system, str(path)


def _info(entry: Mapping[str, Any]) -> FileInfo:
    tag = next((str(entry[name]) for name in _TAGS if entry.get(name) is not None), "")
    when = next((entry[name] for name in _TIMES if entry.get(name) is not None), None)
    is_folder = entry.get("type") == "directory"
    return FileInfo(0 if is_folder else int(entry.get("size") or 0), is_folder, tag, _seconds(when))


def _seconds(when: Any) -> float | None:
    """Times come as numbers, as such or as text."""
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            return None
    if isinstance(when, datetime):
        return when.timestamp()
    return float(when) if isinstance(when, int | float) else None


def _read(file: BinaryIO, max_bytes: int, name: str) -> bytes:
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"{name} has more than {max_bytes:,} bytes")
    return content


def _copy(file: BinaryIO, target: Path, num_bytes: int, name: str) -> None:
    """No more is written than was announced, and no less is kept."""
    done = 0
    with replacing(target, durable=False) as draft:
        with draft.open("xb") as output:
            while done <= num_bytes and (chunk := file.read(_CHUNK)):
                done += len(chunk)
                output.write(chunk)
        if done != num_bytes:
            more = "more" if done > num_bytes else f"{done:,}"
            raise OSError(errno.EIO, f"{name} was listed with {num_bytes:,} bytes and has {more}")

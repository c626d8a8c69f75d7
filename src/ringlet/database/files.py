"""Files that rows may name: those below one allowed directory, whatever links and dots a path holds."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import PurePath

from ringlet.errors import DataError, UsageError

MAX_FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class AllowedDirectory:
    """A directory below which files may be read; relative paths begin there."""

    path: str

    def __post_init__(self) -> None:
        """Refuse what would depend on where a process happens to be."""
        if not self.path.startswith("/") or any(ord(character) < 32 for character in self.path):
            raise UsageError(f"'{self.path}' cannot be the allowed directory: expected a path that begins with '/'")

    def read(self, path: str) -> bytes:
        """The content of a regular file, or a DataError; nothing is told about what lies outside.

        The path is resolved first. Then it is opened step by step from the directory, following no link, so that
        nobody can put one there in between.
        """
        if "\0" in path:
            raise DataError("the path holds a zero byte")
        root = os.path.realpath(self.path)
        target = os.path.realpath(PurePath(root, path))
        parts = PurePath(target).parts[len(PurePath(root).parts) :]
        if not parts or os.path.commonpath([root, target]) != root:
            raise DataError(f"{path}: outside of the allowed directory")
        try:
            return _read(root, parts, path)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _read(root: str, parts: tuple[str, ...], path: str) -> bytes:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(f"{path}: not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise DataError(f"{path}: {status.st_size:,} bytes: too large for a picture")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(status.st_size)  # as much memory is taken as is asked for here
    finally:
        os.close(handle)

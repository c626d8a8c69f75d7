"""The manifest of a hashed directory: facts in JSON, size and SHA-256 of every file, and a SHA-256 of its own content.

It has exactly one way to be written (sorted keys, no spaces), and only that is accepted: every changed byte is noticed.
Messages of this module do not name the directory; callers do.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from ringlet.errors import CheckpointError, NewerCheckpointError, UnreadableCheckpointError, show
from ringlet.io import jsontext
from ringlet.operations.attributes import is_integer

MANIFEST = "manifest.json"
FORMAT = 2
"""What is written. Format 1 had the history of a run in the manifest instead of a file of its own."""
OLDEST_FORMAT = 1
_OWN_KEYS = frozenset({"format", "files", "sha256"})
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileFacts:
    """Size in bytes and SHA-256 (hexadecimal) of a file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The writer's facts and what is known of each file."""

    facts: dict[str, Any]
    files: dict[str, FileFacts]


def serialise(facts: Mapping[str, Any], files: Mapping[str, FileFacts]) -> bytes:
    """The bytes of a manifest; facts that could not be read back just so are refused."""
    if taken := sorted(_OWN_KEYS & facts.keys()):
        raise CheckpointError(f"the name '{taken[0]}' is the manifest's own")
    described = {name: {"size": entry.size, "sha256": entry.sha256} for name, entry in files.items()}
    try:
        _check_keys(facts)
        raw = _encode({**facts, "format": FORMAT, "files": described})
        parse(raw)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot be described as JSON with finite numbers: {error}") from None
    return raw


def _encode(content: Mapping[str, Any]) -> bytes:
    text = jsontext.canonical(content)
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    return jsontext.canonical({**content, "sha256": digest}).encode("ascii") + b"\n"


def _check_keys(value: Any) -> None:
    """JSON would turn keys that are not texts into texts."""
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"key {show(wrong[0])} is not a text")
        for entry in value.values():
            _check_keys(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_keys(entry)


def parse(raw: bytes) -> Manifest:
    """A manifest from its bytes, its own hash checked."""
    try:
        content = jsontext.parse(raw.decode("ascii"))
    except ValueError as error:
        raise CheckpointError(f"{MANIFEST} is not valid: {error}") from None
    if not isinstance(content, dict) or not content.keys() >= _OWN_KEYS:
        raise CheckpointError(f"{MANIFEST} has no {', '.join(sorted(_OWN_KEYS))}")
    given = content.pop("sha256")
    if _encode(content) != raw:
        raise CheckpointError(f"{MANIFEST} does not match its own checksum {show(given)}")
    found = content["format"]
    if not is_integer(found) or not OLDEST_FORMAT <= found <= FORMAT:
        known = f"this version of Ringlet reads formats {OLDEST_FORMAT} to {FORMAT}"
        if is_integer(found) and found > FORMAT:
            raise NewerCheckpointError(f"it has the newer format {show(found)}, {known}")
        raise CheckpointError(f"has format {show(found)}, {known}")
    files = {name: _file_facts(name, entry) for name, entry in _mapping(content["files"]).items()}
    return Manifest({key: value for key, value in content.items() if key not in _OWN_KEYS}, files)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CheckpointError(f"{MANIFEST}: its list of files is {show(value)}, expected a mapping")
    return value


def _file_facts(name: str, value: Any) -> FileFacts:
    if _FILE_NAME.fullmatch(name) is None or name == MANIFEST:
        raise CheckpointError(f"{MANIFEST} lists a file {show(name)}, which is not a plain file name")
    if not isinstance(value, dict) or value.keys() != {"size", "sha256"}:
        raise CheckpointError(f"{MANIFEST}: file '{name}' is not described by size and sha256: {show(value)}")
    size, sha256 = value["size"], value["sha256"]
    if not is_integer(size) or size < 0 or not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
        raise CheckpointError(f"{MANIFEST}: file '{name}' has an impossible size or sha256: {show(value)}")
    return FileFacts(size, sha256)


# -- reading ----------------------------------------------------------------------------------------------------------
def read_verified(directory: Path) -> Manifest:
    """The manifest of ``directory`` after every file in it was found to have its size and hash."""
    manifest = read_manifest(directory)
    with readable():
        for name, facts in manifest.files.items():
            _verify(directory / name, facts)
    return manifest


def read_manifest(directory: Path) -> Manifest:
    """The manifest alone; links in the directory are refused, and so is a directory that is one."""
    with readable():
        if not stat.S_ISDIR(directory.lstat().st_mode):
            raise CheckpointError("is not a directory of its own (a file or a link)")
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink():
                    raise CheckpointError(f"{show(entry.name)} in it is a link, expected the file itself")
        with open_regular(directory / MANIFEST) as file:
            raw = file.read(jsontext.MAX_CHARACTERS + 1)
    return parse(raw)


@contextmanager
def readable() -> Iterator[None]:
    """Errors of the storage become UnreadableCheckpointErrors."""
    try:
        yield
    except OSError as error:
        raise UnreadableCheckpointError(f"cannot be read: {error.strerror or error}") from None


def _verify(path: Path, facts: FileFacts) -> None:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != facts.size:
            raise CheckpointError(f"{path.name} has {size:,} bytes, the manifest says {facts.size:,}")
        if hashlib.file_digest(file, "sha256").hexdigest() != facts.sha256:
            raise CheckpointError(f"{path.name} does not match its checksum")


@contextmanager
def open_regular(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading: no links, pipes or devices."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CheckpointError(f"{path.name} is missing") from None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CheckpointError(f"{path.name} cannot be read: it is a link") from None
        raise UnreadableCheckpointError(f"{path.name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointError(f"{path.name} is not a regular file")
        yield file

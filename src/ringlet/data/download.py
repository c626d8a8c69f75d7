"""Fetching published data sets into the cache: resumable, pinned by SHA-256, nothing half-written.

A file is written to ``NAME.part``, continued there after an interruption (HTTP Range), compared with its digest and
only then renamed. An archive is unpacked afterwards and removed: regular files only, inside the target only, up to a
known size only.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ringlet.data.cache import dataset_directory
from ringlet.data.catalogue import REMOTE, RemoteDataset, RemoteFile
from ringlet.errors import DataError, UnknownNameError, UsageError
from ringlet.io.disk import synchronise, try_lock

Progress = Callable[[str, int, int], None]

_CHUNK = 1 << 18
_ATTEMPTS = 3
_TIMEOUT_SECONDS = 30.0
_UNPACKED_ALLOWANCE = 1 << 20


def fetch(
    name: str,
    *,
    cache_dir: Path | str | None = None,
    base_url: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Bring a data set into the cache and return its folder; what is already there and intact is not fetched again.

    ``base_url`` replaces the publisher's address (a mirror; the digests stay). ``progress(file, done, total)`` is
    called while bytes arrive.
    """
    if name not in REMOTE:
        raise UnknownNameError("downloadable data set", name, REMOTE)
    return fetch_remote(REMOTE[name], dataset_directory(name, cache_dir), base_url=base_url, progress=progress)


def fetch_remote(
    remote: RemoteDataset, folder: Path, *, base_url: str | None = None, progress: Progress | None = None
) -> Path:
    """As :func:`fetch`, for any description of a data set."""
    bases = (base_url,) if base_url else remote.base_urls
    for base in bases:
        if not base.startswith(("http://", "https://")):
            raise UsageError(f"cannot fetch from {base!r}: expected an address that starts with http:// or https://")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create {folder}: {error.strerror}. Set RINGLET_CACHE to a writable folder.") from error
    for file in remote.files:
        _fetch_file(file, folder, bases, progress or _silent)
    return folder


def _fetch_file(file: RemoteFile, folder: Path, bases: tuple[str, ...], progress: Progress) -> None:
    final = folder / file.name
    if file.members and file.is_present(folder):
        return
    if file.members or not (file.is_present(folder) and _digest(final) == file.sha256):
        _download_verified(file, final, bases, progress)
    if file.members:
        extract_tar(final, folder, sum(size for _, size in file.members) + _UNPACKED_ALLOWANCE)
        final.unlink()


def _download_verified(file: RemoteFile, final: Path, bases: tuple[str, ...], progress: Progress) -> None:
    part = final.with_name(final.name + ".part")
    try:
        with part.open("ab") as output:
            _lock(output, part)
            try:
                _download_from_any(file, output, bases, progress)
            finally:
                if _length(output) == 0:  # nothing to go on with: leave nothing
                    part.unlink(missing_ok=True)
            os.fsync(output.fileno())
            part.replace(final)
    except OSError as error:
        raise DataError(f"cannot write {part}: {error.strerror or error}") from error


def _download_from_any(file: RemoteFile, output: BinaryIO, bases: tuple[str, ...], progress: Progress) -> None:
    """Fill ``output`` with the right bytes, or raise; after a wrong digest it is emptied."""
    problem = "no address"
    for base in bases:
        url = base.rstrip("/") + "/" + file.name
        for _ in range(_ATTEMPTS):
            before = _length(output)
            problem = _transfer(url, file, output, progress) or ""
            if not problem:
                found = _digest(Path(output.name))
                if found == file.sha256:
                    return
                output.truncate(0)
                problem = f"{url}: wrong content: SHA-256 {found}, expected {file.sha256}"
                if before == 0:  # all of it came from this server just now: asking again would not help
                    break
            elif _length(output) == before:
                break
    raise DataError(
        f"could not fetch {file.name}: {problem}. Run the same command again to resume; --base-url URL takes a mirror. "
        "Without a network, copy the files from elsewhere and train with --dataset-path FOLDER"
    )


def _transfer(url: str, file: RemoteFile, output: BinaryIO, progress: Progress) -> str | None:
    """Append what is missing; None when complete, otherwise what went wrong."""
    if _length(output) > file.size:
        output.truncate(0)
    start = _length(output)
    if start == file.size:
        return None
    request = urllib.request.Request(url, headers={"User-Agent": "ringlet"})  # noqa: S310 (scheme checked by fetch)
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            if start and not _continues(response, start):
                output.truncate(0)
            return _copy(response, file, output, progress, url)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            output.truncate(0)
        return f"{url}: HTTP {error.code} {error.reason}"
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        return f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    """Whether the server sends what was asked for rather than the file from its beginning."""
    header = response.headers.get("Content-Range", "")
    return response.status == http.client.PARTIAL_CONTENT and header.startswith(f"bytes {start}-")


def _copy(
    response: http.client.HTTPResponse, file: RemoteFile, output: BinaryIO, progress: Progress, url: str
) -> str | None:
    done = _length(output)
    while chunk := response.read(_CHUNK):
        done += len(chunk)
        if done > file.size:
            output.truncate(0)
            return f"{url}: sends more than the expected {file.size:,} bytes"
        output.write(chunk)
        progress(file.name, done, file.size)
    output.flush()
    return None if done == file.size else f"{url}: ended after {done:,} of {file.size:,} bytes"


def _length(output: BinaryIO) -> int:
    output.flush()
    return os.fstat(output.fileno()).st_size


def _lock(output: BinaryIO, part: Path) -> None:
    if try_lock(output.fileno()) is False:
        raise DataError(f"{part} is being written by another process: wait for it to finish")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _silent(_name: str, _done: int, _total: int) -> None: ...


# -- archives ---------------------------------------------------------------------------------------------------------
_MAX_MEMBERS = 1000


def extract_tar(archive: Path, target: Path, max_bytes: int) -> None:
    """Unpack into ``target``; files appear there only after the whole archive was found good."""
    target.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target))
    try:
        _extract(archive, staging, max_bytes)
        for path in sorted(staging.rglob("*")):
            final = target / path.relative_to(staging)
            if path.is_dir():
                final.mkdir(exist_ok=True)
            else:
                synchronise(path)
                path.replace(final)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot unpack {archive}: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _extract(archive: Path, staging: Path, max_bytes: int) -> None:
    total = 0
    with tarfile.open(archive, mode="r:*") as tar:
        for number, member in enumerate(tar):
            total += max(member.size, 0)
            _check_member(member, archive)
            if total > max_bytes or number >= _MAX_MEMBERS:
                raise DataError(f"{archive} unpacks to more than {max_bytes:,} bytes or {_MAX_MEMBERS} files: refused")
            tar.extract(member, staging, filter="data")


def _check_member(member: tarfile.TarInfo, archive: Path) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name or not (member.isfile() or member.isdir()):
        raise DataError(
            f"{archive} holds {member.name!r}, which is a link, a device or outside the target: refused. "
            "Expected regular files only; fetch the archive from its publisher."
        )

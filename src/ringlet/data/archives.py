"""Unpacking a fetched tar archive: regular files only, inside the target only, up to a known size only."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath

from ringlet.errors import DataError

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
                os.replace(path, final)  # noqa: PTH105 (the atomic rename, by its usual name)
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

"""Pictures that cannot be read: found before training, named all at once, and left out if the user says so.

What is looked at when: the beginning and the end of every file before training (of very many some, evenly spread),
which finds what is no picture and what was cut off. With ``skip_broken`` every sample is decoded before training, by
the code that training uses, so that all workers and a resumed run leave out the same ones. Otherwise damage in the
middle of a file is an error when the sample is first read; ``ringlet datasets inspect`` decodes everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringlet.data.bounded import check_decodable, open_file, open_image
from ringlet.data.source import Source, SubsetSource
from ringlet.errors import DataError

HINT = "--skip-broken trains without such files, `ringlet datasets inspect` names all of them"
MAX_LISTED = 10
_TAIL_BYTES = 64
_ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9", "GIF": b"\x3b"}
"""What complete files of a format have near their end."""


@dataclass(frozen=True)
class Broken:
    """A file that cannot be read, and why."""

    path: str
    reason: str

    @classmethod
    def of(cls, path: Path, error: DataError) -> Broken:
        """From the error of its reader, whose text begins with the path."""
        return cls(str(path), str(error).removeprefix(f"{path}: ").removesuffix(f". {HINT}"))


def check_end(path: Path, kind: str | None) -> None:
    """Raise DataError for a file that was cut off. One whose end looks unusual is decoded, which tells."""
    mark = _ENDS.get(kind or "")
    if mark is None:
        return
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        if mark in file.read():
            return
    check_decoded(path)


def check_decoded(path: Path) -> None:
    """Raise DataError for a picture that cannot be decoded."""
    with open_image(path) as image:
        check_decodable(image, path)
        try:
            image.load()
        except Exception as error:  # decoders raise a wide variety of types on damaged files
            raise DataError(f"{path}: damaged image ({error})") from error


def unreadable(broken: Sequence[Broken], num_files: int) -> DataError:
    """The error that names all of them."""
    return DataError(f"{len(broken):,} of {num_files:,} files cannot be read: {listed(broken)}. {HINT}")


def listed(broken: Sequence[Broken]) -> str:
    """The files with what is wrong, as far as a message takes them."""
    shown = "; ".join(f"{one.path}: {one.reason}" for one in broken[:MAX_LISTED])
    return shown + (f"; and {len(broken) - MAX_LISTED:,} more" if len(broken) > MAX_LISTED else "")


def left_out(broken: Sequence[Broken], num_samples: int) -> list[str]:
    """The remark about samples that are left out."""
    if not broken:
        return []
    return [f"skip_broken: {len(broken):,} of {num_samples:,} samples are left out: {listed(broken)}"]


@contextmanager
def advised() -> Iterator[None]:
    """Adds to the error of a file that training cannot read what can be done."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error}. {HINT}") from error


def readable(source: Source, paths: Sequence[Path]) -> tuple[Source, list[Broken]]:
    """The samples that can be read, and the others; ``paths`` are the files of the samples. Reads all of them."""

    def attempt(index: int) -> Broken | None:
        try:
            source.read(np.array([index]))
        except DataError as error:
            return Broken.of(paths[index], error)
        return None

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(attempt, range(len(source))))
    broken = [one for one in found if one is not None]
    if len(broken) == len(found):
        raise unreadable(broken, len(found))
    kept = np.array([index for index, one in enumerate(found) if one is None], np.int64)
    return (SubsetSource(source, kept) if broken else source), broken

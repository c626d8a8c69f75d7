"""Commits on disk: directories ``commit-00000007`` that are there completely or not at all, with a hash of every file.

``arrays.safetensors`` has the arrays, ``manifest.json`` an outline of the values (:mod:`ringlet.io.encoding`). No
pickle, and everything comes back as it was.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint.atomic import make_directory, remove_directory, remove_partials, write_directory
from ringlet.checkpoint.contents import read_tensors, write_tensors
from ringlet.checkpoint.manifest import MANIFEST, read_verified
from ringlet.errors import CheckpointError, UsageError
from ringlet.io import encoding, safetensors

KEPT = 2
ARRAYS = "arrays.safetensors"
_COMMIT = re.compile(r"commit-([0-9]{8,15})")
_SAY = logging.getLogger("ringlet").warning
KINDS = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, np.ndarray, np.generic, type(None))
_OLD_KINDS = {"array": "array", "scalar": "number", "float": "number"}

Arrays = dict[str, NDArray[Any]]


@final
class Commits:
    """The commits in a directory; one process writes. The newest good ones are kept."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self.path = path
        self._kept = kept
        self._unusable: dict[int, str] = {}
        self._prepared = False

    def write(self, values: Mapping[str, Any], number: int | None = None) -> None:
        """Add a commit, durably; whatever goes wrong is a CheckpointError and leaves the older ones intact.

        Its ``number`` is the next one by default; one that is there already is replaced.
        """
        self._prepare()
        facts, arrays = split(values)
        numbers = self.numbers()
        if number in numbers:
            self._remove(number)
        target = self.directory(max(numbers, default=0) + 1 if number is None else number)
        write_directory(
            target,
            {ARRAYS: partial(write_tensors, arrays=arrays)},
            {"values": facts},
            num_bytes=sum(array.nbytes for array in arrays.values()),
        )
        self._prune()

    def newest(self) -> dict[str, Any] | None:
        """The values of the newest good commit, None if there is no commit; see :meth:`find`."""
        found = self.find()
        return None if found is None else found[1]

    def find(self) -> tuple[int, dict[str, Any]] | None:
        """Number and values of the newest good commit, None if there is none; others are named with the reason.

        If none can be used, that is an error: only the user can decide to start from scratch.
        """
        remarks: list[str] = []
        for number in reversed(self.numbers()):
            try:
                values = self._load(number)
            except CheckpointError as error:
                self._unusable[number] = error.state
                remarks.append(f"commit {self.directory(number)} is {error.state}: {error}")
                continue
            for remark in remarks:
                _SAY("%s. Commit %d is used instead", remark, number)
            return number, values
        if remarks:
            raise CheckpointError("\n".join([*remarks, "no other commit is left: delete them to start from scratch"]))
        return None

    def numbers(self) -> list[int]:
        """The numbers of all commits, good or not, in order."""
        try:
            names = {path.name for path in self.path.iterdir()}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {error.strerror}") from None
        numbers = (int(match[1]) for match in map(_COMMIT.fullmatch, names) if match)
        return sorted({number for number in numbers if _name(number) in names})  # no spare zeros: one name per number

    def directory(self, number: int) -> Path:
        """Where a commit is, if it exists."""
        return self.path / _name(number)

    def _load(self, number: int) -> dict[str, Any]:
        directory = self.directory(number)
        manifest = read_verified(directory)
        facts = manifest.facts.get("values")
        if not isinstance(facts, dict) or set(manifest.files) != {ARRAYS}:
            raise CheckpointError(f"{MANIFEST} is not that of a commit")
        return join(facts, read_tensors(directory / ARRAYS))

    def _prepare(self) -> None:
        """What writers that died have left is removed."""
        if not self._prepared:
            make_directory(self.path)
            for remark in remove_partials(self.path, lambda name: _COMMIT.fullmatch(name) is not None, _is_own):
                _SAY("%s", remark)
            self._prepared = True

    def _prune(self) -> None:
        """Remove all but the newest good ones; foreign content is left alone.

        One that could not be read, or is of a newer version, may be good: it stays until enough newer ones are.
        """
        numbers = self.numbers()
        kept = [number for number in numbers if number not in self._unusable][-self._kept :]
        for number in numbers:
            is_damaged = self._unusable.get(number) == CheckpointError.state
            if number not in kept and (is_damaged or number < kept[0]):
                self._remove(number)

    def _remove(self, number: int) -> None:
        try:
            problem = remove_directory(self.directory(number), _is_own)
        except OSError as error:
            problem = str(error)
        if problem is not None:
            _SAY("%s was left alone: %s", self.directory(number), problem)


def _name(number: int) -> str:
    return f"commit-{number:08d}"


def _is_own(name: str) -> bool:
    return name in (ARRAYS, MANIFEST)


# -- what a state may hold --------------------------------------------------------------------------------------------
def check(name: str, value: object) -> None:
    """Refuse what can certainly not be kept; what lists and dictionaries hold is looked at when they are written."""
    if not isinstance(value, KINDS) or (isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject):
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__qualname__
        raise UsageError(
            f"'{name}' of the state is of type {kind}, which cannot be kept: expected None, truth values, numbers, "
            "texts, bytes, NumPy arrays, and lists, tuples, sets and dictionaries of them"
        )


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """An outline in JSON, and arrays of types that safetensors files have."""
    try:
        outline, arrays = encoding.split(dict(values), "the state", is_plain=safetensors.NAMES.__contains__)
    except UsageError as error:
        raise CheckpointError(f"the state cannot be kept: {error}") from None
    return outline, {f"array{place}": array for place, array in enumerate(arrays)}


def join(outline: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The values from what :func:`split` gave; what does not fit together is a CheckpointError."""
    try:
        if not isinstance(outline.get("kind"), str):
            return _join_old(outline, arrays)
        values: dict[str, Any] = encoding.join(outline, [arrays[f"array{place}"] for place in range(len(arrays))])
        return values
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"its values and arrays do not fit together: {error}") from None


def _join_old(facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """From a commit of an earlier format, which described every value by itself."""
    values = {}
    for name, fact in facts.items():
        if fact["kind"] == "json":
            values[name] = fact["value"]
            continue
        array = arrays[name]
        form = [fact["type"], fact["shape"]] if "type" in fact else [array.dtype.name, list(array.shape)]
        value = encoding.join({"kind": _OLD_KINDS[fact["kind"]], "place": 0, "form": form}, [array])
        values[name] = float(value) if fact["kind"] == "float" else value
    return values

"""Commits on disk: directories ``commit-00000007`` that are there completely or not at all, with a hash of every file.

``arrays.safetensors`` has the arrays, ``manifest.json`` the other values: what JSON has. No pickle, and everything
comes back as it was.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.checkpoint.atomic import make_directory, remove_directory, remove_partials, write_directory
from ringlet.checkpoint.manifest import MANIFEST, read_verified
from ringlet.checkpoint.tensors import read_tensors, write_tensors
from ringlet.errors import CheckpointError, UsageError

KEPT = 2
ARRAYS = "arrays.safetensors"
_COMMIT = re.compile(r"commit-([0-9]{8,15})")
_SAY = logging.getLogger("ringlet").warning
KINDS = (bool, int, float, str, list, tuple, dict, np.ndarray, np.generic, type(None))
_AS_BYTES = ("complex64", "complex128", "bfloat16")
"""Types that the file has no name for: their bytes are kept."""

Arrays = dict[str, NDArray[Any]]


@final
class Commits:
    """The commits in a directory; one process writes. The newest two good ones are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unusable: dict[int, str] = {}
        self._prepared = False

    def write(self, values: Mapping[str, Any]) -> None:
        """Add a commit, durably; whatever goes wrong is a CheckpointError and leaves the older ones intact."""
        self._prepare()
        facts, arrays = split(values)
        numbers = self.numbers()
        target = self.directory(max(numbers, default=0) + 1)
        write_directory(
            target,
            {ARRAYS: partial(write_tensors, arrays=arrays)},
            {"values": facts},
            num_bytes=sum(array.nbytes for array in arrays.values()),
        )
        self._prune()

    def newest(self) -> dict[str, Any] | None:
        """The values of the newest good commit, None if there is no commit; others are named with the reason.

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
            return values
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
        """Remove all but the newest two good ones; foreign content is left alone.

        One that could not be read, or is of a newer version, may be good: it stays until two newer ones are.
        """
        numbers = self.numbers()
        kept = [number for number in numbers if number not in self._unusable][-KEPT:]
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
            f"'{name}' of the state is of type {kind}, which cannot be kept: expected a NumPy array of numbers, or "
            "what JSON has: None, truth values, numbers, texts, lists and dictionaries of them"
        )


def split(values: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Facts in JSON and arrays by name. Tuples become lists."""
    facts: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in values.items():
        kind = _array_kind(value)
        if kind is None:
            _require_json(name, value)
            facts[name] = {"kind": "json", "value": value}
            continue
        array = np.asarray(value)
        as_bytes = array.dtype.name in _AS_BYTES
        facts[name] = {"kind": kind} | ({"type": array.dtype.name, "shape": list(array.shape)} if as_bytes else {})
        arrays[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if as_bytes else array
    return facts, arrays


def _require_json(name: str, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"'{name}' of the state cannot be kept: {error}. Lists and dictionaries may hold what JSON has, numbers "
            "that are not finite and arrays only as values of their own"
        ) from None


def _array_kind(value: Any) -> str | None:
    """How an array stands for the value; None if JSON does. Infinities are no numbers of JSON."""
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, np.generic):
        return "scalar"
    return "float" if isinstance(value, float) and not math.isfinite(value) else None


def join(facts: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The values from what :func:`split` gave; what does not fit together is a CheckpointError."""
    try:
        return {name: _value(fact, arrays.get(name)) for name, fact in facts.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"its values and arrays do not fit together: {error}") from None


def _value(fact: dict[str, Any], array: NDArray[Any] | None) -> Any:
    if fact["kind"] == "json":
        return fact["value"]
    if array is None:
        raise KeyError("an array is missing")
    if "type" in fact:
        array = array.view(_dtype(fact["type"])).reshape(fact["shape"])
    if fact["kind"] == "array":
        return array
    scalar = array[()]
    return float(scalar) if fact["kind"] == "float" else scalar


def _dtype(name: str) -> np.dtype[Any]:
    if name not in _AS_BYTES:
        raise ValueError(f"unknown type {name!a}")
    if name == "bfloat16":
        import ml_dtypes  # noqa: F401  NumPy knows the name from now on

    return np.dtype(name)

"""What the checks share: values that every rank can compute for every other, and expected errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError

NUMBERS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    "clongdouble",
)
"""Every dtype that can be combined."""


def values(rank: int, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int = 0) -> Any:
    """Small whole numbers that depend on the rank; complex ones have two parts."""
    random = np.random.default_rng([seed, rank, *shape])
    low = 0 if dtype.kind in "bu" else -3
    numbers = random.integers(low, 2 if dtype.kind == "b" else 4, shape)
    if dtype.kind == "c":
        return (numbers + 1j * random.integers(-3, 4, shape)).astype(dtype)
    return np.asarray(numbers).astype(dtype)


def expect_error(call: Callable[[], object], words: str, kind: type[Exception] = CommunicationError) -> str:
    """The message of the error that ``call`` must raise; it must contain ``words``."""
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call()
    return str(caught.value)


def is_one_machine(comm: Communicator) -> bool:
    return comm.local_size == comm.size

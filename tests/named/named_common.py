"""What the checks of named collectives share: requests in short form, values that every rank can compute, errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ringlet.comm import arrays
from ringlet.named import CollectiveError, Handle, NamedCollectives, Reduction, Submission

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def values(rank: int, shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    """Small whole numbers that depend on the rank, exact in every dtype."""
    wanted = np.dtype(dtype)
    low, high = (0, 2) if wanted.kind == "b" else (0, 4) if wanted.kind == "u" else (-3, 4)
    numbers = np.random.default_rng([seed, rank, *shape]).integers(low, high, shape)
    return np.asarray(numbers).astype(wanted)


def submit(group: NamedCollectives, kind: str, name: str, *inputs: Any, **options: Any) -> Handle:
    """Submit a request; ``background`` is an option of the submission, the others are the request's."""
    background = options.pop("background", True)
    return group.submit(Submission(kind, name, inputs, **options), background=background)


def run(group: NamedCollectives, kind: str, name: str, *inputs: Any, **options: Any) -> list[Any]:
    return group.run(Submission(kind, name, inputs, **options))


def expected_reduction(stack: Sequence[Any], op: Reduction, pre: float = 1.0, post: float = 1.0) -> Any:
    """The plain way: accumulate wide, scale, average, round or cut once at the end of every stage."""
    dtype = stack[0].dtype
    wide = arrays.accumulator(dtype)
    scaled = [_scaled(values, pre) for values in stack]
    total = scaled[0].astype(wide)
    for others in scaled[1:]:
        right = others.astype(wide)
        total = {
            Reduction.SUM: np.add,
            Reduction.AVERAGE: np.add,
            Reduction.MIN: np.minimum,
            Reduction.MAX: np.maximum,
            Reduction.PRODUCT: np.multiply,
        }[op](total, right)
    if op is Reduction.AVERAGE:
        total = np.trunc(total / len(stack)) if dtype.kind in "iu" else total / len(stack)
    return _scaled(total.astype(dtype), post)


def _scaled(values: Any, factor: float) -> Any:
    if factor == 1.0:
        return values
    return (values * factor).astype(values.dtype) if values.dtype.kind in "iu" else values * values.dtype.type(factor)


def same(result: Any, expected: Any) -> None:
    """Equal in dtype, shape and value."""
    expected = np.asarray(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result.astype(np.complex128), expected.astype(np.complex128))


def expect_error(call: Callable[[], object], words: str, kind: type[Exception] = CollectiveError) -> str:
    """The message of the error that ``call`` must raise; it must contain ``words``."""
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call()
    return str(caught.value)


def still_works(group: NamedCollectives) -> None:
    """The next operation takes place."""
    [total] = run(group, "allreduce", "still works", np.array([group.rank + 1.0]), op=Reduction.SUM)
    same(total, [group.size * (group.size + 1) / 2])

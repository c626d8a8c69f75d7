"""Values as bytes: they come back as they were, and hostile bytes are refused without doing anything else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ringlet.comm import values
from ringlet.errors import DataError, UsageError

some_examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)
simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
arrays = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3))
nested = st.recursive(
    simple | st.complex_numbers(allow_nan=False) | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers() | st.just("__ringlet__"), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)


def described(value):
    """Something that is equal if values are, bit by bit."""
    if isinstance(value, np.ndarray | np.generic):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return (type(value), [described(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(described(key), described(item)) for key, item in value.items()])
    return (type(value), repr(value))


@given(nested)
@some_examples
def test_values_come_back_as_they_were(value):
    assert described(values.loads(values.dumps(value, "value"))) == described(value)


def test_scalars_records_and_short_floats_come_back():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    record = np.array([(1, 2.5, [3, 4])], [("a", "i4"), ("b", "f8"), ("c", "u1", (2,))])
    for value in (np.float32(1.5), np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3), record, np.array(["ab", "c"])):
        assert described(values.loads(values.dumps([value], "value"))[0]) == described(value)
    view = np.arange(12.0).reshape(3, 4)[:, ::2]
    assert values.loads(values.dumps(view, "value")).tolist() == view.tolist()


def test_what_is_no_plain_value_is_refused_by_name():
    for value, words in (({"a": [object()]}, r"value\['a'\]\[0\] is of type builtins\.object"), ({1}, "builtins.set")):
        with pytest.raises(UsageError, match=words):
            values.dumps(value, "value")
    with pytest.raises(UsageError, match="an array of object"):
        values.dumps(np.array([None]), "value")


def read(data):
    """A value or a refusal; anything else is a defect."""
    try:
        return values.loads(data)
    except DataError:
        return None


@given(st.binary(max_size=200))
@some_examples
def test_any_bytes_are_refused(data):
    assert read(data) is None
    assert read(b"ringlet value 1\n" + data) is None or data


@given(nested, st.data())
@some_examples
def test_damaged_values_are_refused_or_still_values(value, data):
    good = values.dumps(value, "value")
    cut = data.draw(st.integers(0, len(good) - 1))
    assert read(good[:cut]) is None
    read(good + b"x")
    place = data.draw(st.integers(0, len(good) - 1))
    read(good[:place] + bytes([data.draw(st.integers(0, 255))]) + good[place + 1 :])


def forged(document, about, payload=b""):
    texts = [json.dumps(document).encode(), json.dumps(about).encode()]
    return (
        b"ringlet value 1\n" + b"".join(len(text).to_bytes(8, "little") for text in texts) + b"".join(texts) + payload
    )


@pytest.mark.parametrize(
    "data",
    [
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": None}, [["|O", 1]], b"\0" * 8),
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": "os"}, [["|u1", 1]], b"\0"),
        forged({"__ringlet__": "array", "name": "array7", "scalar": False, "type": None}, []),
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": None}, [["<f8", 1 << 60]]),
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": None}, [["<f8", -1]]),
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": None}, [["<f8", True]], b"\0" * 8),
        forged({"__ringlet__": "array", "name": "array0", "scalar": False, "type": None}, [["|V0", 1 << 40]]),
        forged({"__ringlet__": "bytes", "value": 5}, []),
        forged({"__ringlet__": "complex", "value": ["a", "b", "c"]}, []),
        forged({"__ringlet__": "tuple"}, []),
        forged({"__ringlet__": "dict", "items": [[[1], 2]]}, []),
        forged(1, [], b"more"),
        forged(1, 5),
        forged(1, [["no such type", 1]]),
    ],
)
def test_forged_values_are_refused(data):
    with pytest.raises(DataError, match="are no value that Ringlet encoded"):
        values.loads(data)


def test_values_that_are_nested_without_end_are_refused():
    text = b"[" * 200_000 + b"]" * 200_000
    data = b"ringlet value 1\n" + len(text).to_bytes(8, "little") + (2).to_bytes(8, "little") + text + b"[]"
    with pytest.raises(DataError, match="recursion"):
        values.loads(data)

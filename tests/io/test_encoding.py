"""Values without pickle: they come back as they were, and hostile bytes are refused without doing anything else."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ringlet.errors import DataError, UsageError
from ringlet.io import encoding

some_examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)
simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
arrays = hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3))
nested = st.recursive(
    simple | st.complex_numbers(allow_nan=False) | arrays,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text() | st.integers() | st.just("__ringlet__"), inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(st.integers(), max_size=3)
        | st.sets(st.text(max_size=2), max_size=3)
    ),
    max_leaves=8,
)


def described(value):
    """Something that is equal if values are, bit by bit."""
    if isinstance(value, np.ndarray | np.generic):
        return (type(value), value.dtype, value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return (type(value), [described(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value), sorted(value))
    if isinstance(value, dict):
        return (dict, [(described(key), described(item)) for key, item in value.items()])
    return (type(value), repr(value))


@given(nested)
@some_examples
def test_values_come_back_as_they_were(value):
    assert described(encoding.loads(encoding.dumps(value, "value"))) == described(value)


def test_scalars_records_and_short_floats_come_back():
    import ml_dtypes

    record = np.array([(1, 2.5, [3, 4])], [("a", "i4"), ("b", "f8"), ("c", "u1", (2,))])
    for value in (np.float32(1.5), np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3), record, np.array(["ab", "c"])):
        assert described(encoding.loads(encoding.dumps([value], "value"))[0]) == described(value)
    view = np.arange(12.0).reshape(3, 4)[:, ::2]
    assert encoding.loads(encoding.dumps(view, "value")).tolist() == view.tolist()


def test_what_is_no_plain_value_is_refused_by_name():
    for value, words in (
        ({"a": [object()]}, r"value\['a'\]\[0\] is of type builtins\.object"),
        (range(3), "builtins.range"),
    ):
        with pytest.raises(UsageError, match=words):
            encoding.dumps(value, "value")
    with pytest.raises(UsageError, match="an array of object"):
        encoding.dumps(np.array([None]), "value")


def read(data):
    """A value or a refusal; anything else is a defect."""
    try:
        return encoding.loads(data)
    except DataError:
        return None


@given(st.binary(max_size=200))
@some_examples
def test_any_bytes_are_refused(data):
    assert read(data) is None
    assert read(b"ringlet value 2\n" + data) is None or data


@given(nested, st.data())
@some_examples
def test_damaged_values_are_refused_or_still_values(value, data):
    good = encoding.dumps(value, "value")
    cut = data.draw(st.integers(0, len(good) - 1))
    assert read(good[:cut]) is None
    read(good + b"x")
    place = data.draw(st.integers(0, len(good) - 1))
    read(good[:place] + bytes([data.draw(st.integers(0, 255))]) + good[place + 1 :])


def forged(outline, payload=b""):
    text = json.dumps(outline).encode()
    return b"ringlet value 2\n" + len(text).to_bytes(8, "little") + text + payload


def array_node(type_text, *shape, place=0):
    return {"kind": "array", "place": place, "form": [type_text, list(shape)]}


@pytest.mark.parametrize(
    "data",
    [
        forged(array_node("|O", 1), b"\0" * 8),
        forged(array_node("os", 1), b"\0"),
        forged(array_node("<f8", 1, place=7), b"\0" * 8),
        forged(array_node("<f8", 1, place=-1), b"\0" * 8),
        forged(array_node("<f8", 1, place="0"), b"\0" * 8),
        forged(array_node("<f8", 1, place=[]), b"\0" * 8),
        forged(array_node("<f8", 1 << 60)),
        forged(array_node("<f8", -1)),
        forged(array_node("<f8", True), b"\0" * 8),
        forged(array_node("|V0", 1 << 40)),
        forged(array_node([["a", "|O"]], 1), b"\0" * 8),
        forged({"kind": "array", "place": 0}),
        forged({"kind": "array", "place": 0, "form": 5}),
        forged({"kind": "bytes", "text": 5}),
        forged({"kind": "complex", "parts": ["a", "b", "c"]}),
        forged({"kind": "float", "name": "two"}),
        forged({"kind": "tuple"}),
        forged({"kind": "dict", "items": [1]}),
        forged({"kind": "dict", "items": [[{"kind": "list", "items": []}, 2]]}),
        forged({"kind": "tensor", "name": "x"}),
        forged({"kind": ["list"], "items": []}),
        forged({}),
        forged(1, b"more"),
    ],
)
def test_forged_values_are_refused(data):
    with pytest.raises(DataError, match="are no value that Ringlet encoded"):
        encoding.loads(data)


def test_values_that_are_nested_without_end_are_refused():
    text = b"[" * 200_000 + b"]" * 200_000
    with pytest.raises(DataError, match="recursion"):
        encoding.loads(b"ringlet value 2\n" + len(text).to_bytes(8, "little") + text)
    inside: list[object] = []
    inside.append(inside)
    with pytest.raises(UsageError, match="value is nested too deeply"):
        encoding.dumps(inside, "value")


def test_files_hold_values_and_are_never_half_written(tmp_path):
    path = tmp_path / "value"
    value = {"numbers": np.arange(3), 1: (float("inf"), {2, 3})}
    encoding.save(value, path, "value")
    assert described(encoding.load(path)) == described(value)
    with pytest.raises(UsageError):
        encoding.save(object(), path, "value")
    assert [entry.name for entry in tmp_path.iterdir()] == ["value"]
    assert described(encoding.load(path)) == described(value)


# -- outline and arrays -----------------------------------------------------------------------------------------------
def test_arrays_of_other_types_become_bytes_where_that_is_asked_for():
    value = {"plain": np.ones(2, np.float32), "text": np.array(["ab", "c"]), "none": np.zeros((0, 3), ">i2")}
    outline, arrays = encoding.split(value, is_plain=lambda dtype: dtype == np.float32)
    assert [array.dtype for array in arrays] == [np.float32, np.uint8, np.uint8]
    assert arrays[0] is value["plain"]
    assert encoding.forms(outline) == [(array.dtype, array.shape) for array in value.values()]
    assert described(encoding.join(json.loads(json.dumps(outline)), arrays)) == described(value)


def test_an_outline_has_finite_numbers_only():
    value = [float("nan"), float("-inf"), complex(float("inf"), -0.0)]
    outline, _ = encoding.split(value)
    text = json.dumps(outline, allow_nan=False)
    assert repr(encoding.join(json.loads(text), [])) == repr(value)


class Fraction:
    def __init__(self, over, under):
        self.parts = over, under


LEAVES = (
    encoding.Leaf("fraction", Fraction, lambda it: np.array(it.parts) if it.parts[1] else None, lambda a: Fraction(*a)),
    encoding.Leaf("path", PurePosixPath, str, PurePosixPath),
)


def test_types_of_other_libraries_join_as_arrays_or_texts():
    outline, arrays = encoding.split({"a": Fraction(1, 2), "b": PurePosixPath("/x")}, leaves=LEAVES)
    assert [array.tolist() for array in arrays] == [[1, 2]]
    found = encoding.join(outline, arrays, leaves=LEAVES)
    assert (found["a"].parts, found["b"]) == ((1, 2), PurePosixPath("/x"))
    with pytest.raises(ValueError, match="no outline of a value"):
        encoding.join(outline, arrays)
    with pytest.raises(UsageError, match=r"the value\['a'\] is of type .*Fraction, which cannot travel"):
        encoding.split({"a": Fraction(1, 0)}, leaves=LEAVES)


def test_arrays_that_do_not_fit_the_outline_are_refused():
    outline, arrays = encoding.split([np.arange(4.0)])
    for wrong in ([], [arrays[0].astype("f4")], [arrays[0].reshape(2, 2)], [np.zeros(5, np.uint8)]):
        with pytest.raises(ValueError):
            encoding.join(outline, wrong)


def test_other_mappings_and_tuples_come_back_as_plain_ones():
    value = (defaultdict(list, a=[1]), OrderedDict(b=2), Counter("aa"), frozenset([3]))
    found = encoding.loads(encoding.dumps(value, "value"))
    assert [type(item) for item in found] == [dict, OrderedDict, Counter, frozenset]
    assert found == value

"""Pictures become what the training data were: the same pixels, the same range of values."""

from __future__ import annotations

import numpy as np
import PIL.Image
import pytest

from ringlet.data.images import read_image
from ringlet.data.normalization import BYTES, DIGITS, Normalization
from ringlet.data.source import ArraySource, ResizedSource
from ringlet.errors import ConfigError, DataError
from ringlet.inference import Preprocessing


@pytest.mark.parametrize("ending", ["png", "jpg"])
@pytest.mark.parametrize("size", [(16, 12), (100, 90), (333, 41), (5, 7)])
def test_files_are_decoded_and_resized_as_training_does_it(own_folder, ending, size):
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    path = own_folder / f"x.{ending}"
    PIL.Image.fromarray(values).save(path)
    found, natural = Preprocessing((3, 12, 16), BYTES).decode(path.read_bytes(), "x")
    np.testing.assert_array_equal(np.moveaxis(found, 2, 0), read_image(path, (3, 12, 16)))
    assert natural == (size[1], size[0])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_are_resized_as_training_does_it(dtype):
    values = (np.random.default_rng(0).random((1, 3, 9, 20)) * 255).astype(dtype)
    source = ResizedSource(ArraySource(values, np.zeros(1, np.int64), 1), (12, 16))
    normalization = BYTES if dtype == np.uint8 else Normalization()
    found, natural = Preprocessing((3, 12, 16), normalization).fit(np.moveaxis(values[0], 0, 2), "x")
    np.testing.assert_array_equal(np.moveaxis(found, 2, 0), source.read(np.array([0]))[0][0])
    assert natural == (9, 20)


@pytest.mark.parametrize(
    ("normalization", "dtype", "white"),
    [(BYTES, np.uint8, 255), (DIGITS, np.uint8, 16), (Normalization(), np.float32, 1.0)],
)
def test_white_becomes_the_white_of_the_training_data(own_folder, normalization, dtype, white):
    path = own_folder / "x.png"
    PIL.Image.fromarray(np.array([[0, 255], [128, 64]], np.uint8)).save(path)
    found, _ = Preprocessing((1, 2, 2), normalization).decode(path.read_bytes(), "x")
    assert found.dtype == dtype
    assert (found[0, 0, 0], found[0, 1, 0]) == (0, white)
    np.testing.assert_allclose(found[1, :, 0] / white, [128 / 255, 64 / 255], atol=0.5 / white if white > 1 else 1e-6)


def test_values_beyond_the_range_of_the_training_data_are_refused():
    with pytest.raises(DataError, match="x: values from 0 to 255: expected 0 to 16"):
        Preprocessing((1, 2, 2), DIGITS).fit(np.array([[[0], [255]], [[3], [4]]], np.uint8), "x")


def test_whole_numbers_may_have_any_type():
    preprocessing = Preprocessing((1, 2, 2), BYTES)
    for dtype in (np.float64, np.int32, np.uint8):
        values, _ = preprocessing.fit(np.array([[[0], [255]], [[3], [4]]], dtype), "x")
        assert values.dtype == np.uint8
        assert values[0, 1, 0] == 255


@pytest.mark.parametrize(
    ("shape", "layout"), [((5, 6, 3), "last"), ((3, 5, 6), "first"), ((3, 4, 3), "first"), ((9, 3, 3), "last")]
)
def test_the_channels_are_found(shape, layout):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = Preprocessing((3, 4, 3), Normalization()).channels_last(values, "x")
    np.testing.assert_array_equal(found, values if layout == "last" else np.moveaxis(values, 0, 2))


def test_constants_must_fit_the_channels():
    with pytest.raises(ConfigError, match="1 or 3 channels"):
        Preprocessing((3, 4, 4), Normalization(1 / 255, (0.1, 0.2), (1.0, 1.0)))
    with pytest.raises(ConfigError, match="scale"):
        Preprocessing((3, 4, 4), Normalization(-1.0))


def test_features_are_taken_as_they_are():
    preprocessing = Preprocessing((4,), Normalization(1.0, (0.5,), (2.0,)))
    values, _ = preprocessing.fit(preprocessing.channels_last(np.arange(4), "x"), "x")
    assert values.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(DataError, match=r"shape \(5,\): expected \(4,\)"):
        preprocessing.channels_last(np.arange(5), "x")
    with pytest.raises(DataError, match="no picture"):
        preprocessing.decode(b"x", "x")

import numpy as np
import pytest

from ringlet.data.normalization import CIFAR10, MNIST, Normalization
from ringlet.errors import ConfigError


def test_bytes_become_scaled_and_standardised_per_channel() -> None:
    values = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 4), dtype=np.uint8)
    mean, std = np.array(CIFAR10.mean).reshape(3, 1, 1), np.array(CIFAR10.std).reshape(3, 1, 1)
    result = CIFAR10.apply(values)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, (values / 255.0 - mean) / std, rtol=1e-5, atol=1e-6)


def test_float64_is_exact_to_rounding() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    np.testing.assert_allclose(MNIST.apply(values, "float64"), (values / 255 - 0.1307) / 0.3081, rtol=1e-13, atol=1e-14)


def test_the_stored_values_are_left_alone() -> None:
    values = np.ones((2, 1, 2, 2), dtype=np.float32)
    Normalization(scale=2.0, mean=(1.0,), std=(4.0,)).apply(values)
    assert values.min() == values.max() == 1.0


def test_the_result_is_contiguous_whatever_the_strides_were() -> None:
    channels_last = np.zeros((2, 4, 5, 3), dtype=np.uint8)
    assert Normalization().apply(np.moveaxis(channels_last, 3, 1)).flags.c_contiguous


def test_it_survives_a_round_trip_through_plain_values() -> None:
    assert Normalization.from_dict(CIFAR10.to_dict()) == CIFAR10


@pytest.mark.parametrize("values", [{}, {"scale": "x", "mean": [0], "std": [1]}, {"scale": 1, "mean": 0, "std": 1}])
def test_plain_values_that_are_no_normalisation_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="not a normalisation"):
        Normalization.from_dict(values)


@pytest.mark.parametrize("std", [(0.0,), (-1.0,), (float("nan"),), (1.0, 1.0), ()])
def test_constants_that_would_spread_nan_are_refused(std: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="cannot normalise"):
        Normalization(1.0, (0.0,), std)


def test_a_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(ConfigError, match="3 channels"):
        CIFAR10.apply(np.zeros((2, 1, 4, 4), dtype=np.uint8))

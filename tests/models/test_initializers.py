"""First weights have the right variance, belong to their name and seed, and depend on nothing else."""

from __future__ import annotations

import hashlib
from math import prod, sqrt

import numpy as np
import pytest

from ringlet.errors import ConfigError
from ringlet.models.builder import batch_norm, build, conv2d, conv2d_transpose, dense, flatten, image_input, relu
from ringlet.models.initializers import initial_values, initialize, stream
from ringlet.models.spec import ModelSpec, ParameterInfo
from ringlet.operations.base import INITIALIZERS

VARIANCE = {
    "glorot": lambda fan_in, fan_out: 2 / (fan_in + fan_out),
    "he": lambda fan_in, _: 2 / fan_in,
    "lecun": lambda fan_in, _: 1 / fan_in,
}


def conv_info(**options) -> ParameterInfo:
    return build("one", conv2d(image_input((8, 9, 9)), 16, kernel=(3, 5), **options)).parameters[0]


@pytest.mark.parametrize("initializer", INITIALIZERS)
@pytest.mark.parametrize("layer", ["dense", "conv", "grouped"])
def test_variance_follows_the_fans(initializer, layer):
    fans = {"dense": (300, 200), "conv": (32 * 9, 64 * 9), "grouped": (8 * 9, 16 * 9)}[layer]
    if layer == "dense":
        output = dense(image_input((300,)), 200, initializer=initializer)
    else:
        groups = 4 if layer == "grouped" else 1
        output = conv2d(image_input((32, 8, 8)), 64, kernel=3, groups=groups, initializer=initializer)
    info = build("one", output).parameters[0]
    values = initial_values(info, seed=1, dtype="float64")
    kind, distribution = initializer.split("_")
    expected = VARIANCE[kind](*fans)
    assert (info.fan_in, info.fan_out) == fans
    assert values.var() == pytest.approx(expected, rel=0.05)
    assert abs(values.mean()) < 5 * sqrt(expected / values.size)
    limit = sqrt(3 * expected)
    assert (np.abs(values).max() <= limit) == (distribution == "uniform")


def test_the_fan_of_a_convolution_counts_its_group_and_window():
    info = conv_info(groups=4)
    assert (info.fan_in, info.fan_out) == (2 * 15, 4 * 15)


def test_a_strided_transposed_convolution_sums_only_the_taps_that_meet():
    x = conv2d_transpose(image_input((10, 4, 4)), 6, kernel=2, stride=2)
    info = build("up", x).parameters[0]
    assert (info.shape, info.fan_in, info.fan_out) == ((10, 6, 2, 2), 10, 24)


def test_constants_start_where_they_should(tiny_spec):
    values = initialize(tiny_spec, seed=3)
    starts = {name: set(array.ravel()) for name, array in values.items() if not name.endswith("weight")}
    assert starts == {
        "norm1.scale": {1.0}, "norm1.shift": {0.0}, "norm1.running_mean": {0.0}, "norm1.running_var": {1.0},
        "dense1.bias": {0.0},
    }  # fmt: skip


def test_every_tensor_has_its_shape_and_the_dtype(tiny_spec):
    values = initialize(tiny_spec, seed=0, dtype="float64")
    infos = (*tiny_spec.parameters, *tiny_spec.state)
    assert {name: array.shape for name, array in values.items()} == {info.name: info.shape for info in infos}
    assert {array.dtype for array in values.values()} == {np.dtype("float64")}


def test_the_order_of_layers_does_not_change_a_tensor():
    first = relu(dense(flatten(image_input((2, 4, 4))), 32, name="a"))
    second = batch_norm(conv2d(image_input((2, 4, 4)), 2, kernel=1, name="other"))
    one = build("one", dense(first, 8, name="b"))
    two = build("two", dense(relu(dense(flatten(second), 32, name="a")), 8, name="b"))
    left, right = initialize(one, seed=5), initialize(two, seed=5)
    assert np.array_equal(left["a.weight"], right["a.weight"])
    assert np.array_equal(left["b.weight"], right["b.weight"])


def test_names_and_seeds_give_different_values():
    draws = [stream(seed, name).random() for seed in (0, 1) for name in ("a.weight", "b.weight")]
    assert len(set(draws)) == 4


def test_float32_values_are_the_rounded_float64_values(tiny_spec):
    wide, narrow = initialize(tiny_spec, 7, "float64"), initialize(tiny_spec, 7, "float32")
    assert all(np.array_equal(wide[name].astype("float32"), narrow[name]) for name in wide)


def test_large_tensors_drawn_in_chunks_do_not_repeat():
    info = ParameterInfo("big.weight", "big", "weight", (1024, 1024), "he_normal", 1024, 1024)
    values = initial_values(info, 0).ravel()
    assert len(np.unique(values[:: 1 << 12])) == values.size // (1 << 12)


def test_the_stream_is_keyed_by_the_hash_of_seed_and_name(tiny_spec):
    values = initialize(tiny_spec, seed=42, dtype="float64")["conv1.weight"].ravel()
    generator = np.random.Generator(
        np.random.Philox(key=int.from_bytes(hashlib.sha256(b"42:conv1.weight").digest()[:16], "little"))
    )
    limit = sqrt(6 / (2 * 9 + 3 * 9))
    assert np.array_equal(values, generator.uniform(-limit, limit, prod(values.shape)))


@pytest.mark.parametrize("seed", [-1, 1 << 64, 1.5, True, "0", None])
def test_a_bad_seed_is_refused(tiny_spec: ModelSpec, seed):
    with pytest.raises(ConfigError, match="seed must be an integer"):
        initialize(tiny_spec, seed)


@pytest.mark.parametrize("dtype", ["float16", "int32", "flaot32", None, object])
def test_a_bad_dtype_is_refused(tiny_spec: ModelSpec, dtype):
    with pytest.raises(ConfigError, match="dtype must be float32 or float64"):
        initialize(tiny_spec, 0, dtype)

"""Batch normalisation goes into the layer before it where it can, and stays where it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.errors import SpecError
from ringlet.export.network import fold
from ringlet.models import builder as b
from ringlet.operations.pooling import pool_pads


def folded(output):
    spec = b.build("g", output)
    rng = np.random.default_rng(3)
    infos = (*spec.parameters, *spec.state)
    tensors = {info.name: rng.uniform(0.5, 1.5, info.shape).astype(np.float32) for info in infos}
    return spec, tensors, fold(spec, tensors)


def operations(network):
    return [layer.op for layer in network.layers]


@pytest.mark.parametrize("bias", [True, False])
def test_a_batch_norm_vanishes_into_the_convolution_before_it(bias):
    x = b.conv2d(b.image_input((2, 4, 4)), 3, kernel=1, bias=bias)
    _, tensors, network = folded(b.batch_norm(x, epsilon=1e-3))
    factor = tensors["norm1.scale"] / np.sqrt(tensors["norm1.running_var"] + 1e-3)
    before = tensors["conv1.bias"] if bias else 0.0
    assert operations(network) == ["conv2d"]
    weight, shift = network.layers[0].tensors["weight"], network.layers[0].tensors["bias"]
    np.testing.assert_allclose(weight, tensors["conv1.weight"] * factor[:, None, None, None], rtol=1e-6)
    np.testing.assert_allclose(
        shift, factor * (before - tensors["norm1.running_mean"]) + tensors["norm1.shift"], atol=1e-6
    )


def test_transposed_convolutions_count_their_outputs_on_the_second_axis():
    x = b.conv2d_transpose(b.image_input((2, 4, 4)), 3, kernel=1)
    _, tensors, network = folded(b.batch_norm(x))
    factor = tensors["norm1.scale"] / np.sqrt(tensors["norm1.running_var"] + 1e-5)
    weight = network.layers[0].tensors["weight"]
    np.testing.assert_allclose(weight, tensors["upconv1.weight"] * factor[None, :, None, None], rtol=1e-6)


def test_a_batch_norm_stays_if_somebody_else_reads_the_convolution():
    x = b.conv2d(b.image_input((2, 4, 4)), 2, kernel=1)
    _, _, network = folded(b.add(b.batch_norm(x), x))
    assert operations(network) == ["conv2d", "batch_norm", "add"]


def test_a_batch_norm_behind_an_activation_stays():
    x = b.relu(b.conv2d(b.image_input((2, 4, 4)), 2, kernel=1))
    _, _, network = folded(b.batch_norm(x))
    assert operations(network) == ["conv2d", "relu", "batch_norm"]


def test_of_two_in_a_row_the_first_vanishes():
    x = b.batch_norm(b.dense(b.image_input((5,)), 4))
    _, _, network = folded(b.batch_norm(x))
    assert operations(network) == ["dense", "batch_norm"]


def test_dropout_is_left_out_and_no_obstacle():
    x = b.dropout(b.conv2d(b.image_input((2, 4, 4)), 2, kernel=1), 0.5)
    _, _, network = folded(b.relu(b.batch_norm(x)))
    assert operations(network) == ["conv2d", "relu"]
    assert network.layers[1].inputs == ("conv1",)


def test_a_network_of_dropout_alone_has_nothing_to_export():
    with pytest.raises(SpecError, match="nothing to export"):
        folded(b.dropout(b.image_input((2, 4, 4)), 0.5))


@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_padding_gives_just_as_many_windows_as_the_spec_says(kernel, stride, ceil_mode):
    for extent in range(kernel, 20):
        for padding in range(kernel // 2 + 1):
            x = b.image_input((1, extent, extent))
            shape = b.max_pool2d(x, kernel, stride=stride, padding=padding, ceil_mode=ceil_mode).shape
            window = {"kernel": (kernel, kernel), "stride": (stride, stride), "padding": (padding, padding)}
            before, after = pool_pads(window, (1, extent, extent), shape)[0]
            assert (extent + before + after - kernel) // stride + 1 == shape[1]
            assert max(before, after) < kernel

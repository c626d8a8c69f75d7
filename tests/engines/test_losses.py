"""Every loss on every kind of output and target has PyTorch's value and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica
from ringlet.models import builder as b

LOSSES = ("categorical_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae")


def classifier(last):
    x = b.dense(b.flatten(b.image_input((2, 4, 4))), 3)
    return b.build("classifier", b.activation(x, last))


def segmenter(last):
    x = b.conv2d(b.image_input((2, 4, 4)), 3, kernel=3, padding=1)
    return b.build("segmenter", b.activation(x, last))


@pytest.mark.parametrize("network", [classifier, segmenter], ids=lambda network: network.__name__)
@pytest.mark.parametrize("last", ["softmax", "sigmoid"])
@pytest.mark.parametrize("loss", LOSSES)
def test_integer_classes(network, last, loss, kernels, assert_parity):
    spec = network(last)
    targets = np.random.default_rng(0).integers(0, 3, (5, *spec.output_shape[1:]))
    assert_parity(spec, kernels, count=5, loss=loss, targets=targets)


@pytest.mark.parametrize("network", [classifier, segmenter], ids=lambda network: network.__name__)
@pytest.mark.parametrize("loss", LOSSES[1:])
def test_floating_values(network, loss, kernels, assert_parity):
    spec = network("sigmoid")
    targets = np.random.default_rng(0).random((5, *spec.output_shape))
    assert_parity(spec, kernels, count=5, loss=loss, targets=targets)


@pytest.mark.parametrize("network", [classifier, segmenter], ids=lambda network: network.__name__)
@pytest.mark.parametrize("last", ["softmax", "sigmoid"])
def test_shares_of_classes(network, last, kernels, assert_parity):
    spec = network(last)
    shares = np.random.default_rng(0).random((5, *spec.output_shape))
    shares /= shares.sum(axis=1, keepdims=True)
    assert_parity(spec, kernels, count=5, loss="soft_cross_entropy", targets=shares)


@pytest.mark.parametrize("network", [classifier, segmenter], ids=lambda network: network.__name__)
def test_shares_of_two_classes_are_the_mixture_of_their_losses(network, reference):
    spec = network("softmax")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    first, second = (rng.integers(0, 3, (1, *spec.output_shape[1:])) for _ in range(2))
    hard = NativeReplica(spec, local_batch_size=1, kernels=reference)
    soft = NativeReplica(spec, local_batch_size=1, kernels=reference, loss="soft_cross_entropy")
    shares = 0.3 * np.eye(3)[first] + 0.7 * np.eye(3)[second]
    found = soft.loss_and_gradients(inputs, np.moveaxis(shares, -1, 1)).loss_sum
    losses, gradients = [], []
    for classes in (first, second):
        losses.append(hard.loss_and_gradients(inputs, classes).loss_sum)
        gradients.append(hard.gradients.flat.copy())
    assert found == pytest.approx(0.3 * losses[0] + 0.7 * losses[1], rel=1e-6)
    np.testing.assert_allclose(soft.gradients.flat, 0.3 * gradients[0] + 0.7 * gradients[1], atol=1e-6)
    assert soft.evaluate(inputs, first).loss_sum == pytest.approx(hard.evaluate(inputs, first).loss_sum, rel=1e-6)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_for_a_single_output_are_its_values(reference, shape, dtype):
    spec = b.build("binary", b.sigmoid(b.dense(b.flatten(b.image_input((1, 2, 2))), 1)))
    replica = NativeReplica(spec, loss="binary_cross_entropy", local_batch_size=6, kernels=reference)
    inputs = np.random.default_rng(0).standard_normal((6, 1, 2, 2), dtype=np.float32)
    labels = np.array([0, 1, 1, 0, 1, 0])
    expected = replica.evaluate(inputs, labels.reshape(6, 1).astype(float)).loss_sum
    assert replica.evaluate(inputs, labels.reshape(shape).astype(dtype)).loss_sum == expected


def test_fused_cross_entropy_stays_finite_for_huge_logits(kernels):
    spec = b.build("extreme", b.softmax(b.dense(b.flatten(b.image_input((1, 2, 2))), 3)))
    replica = NativeReplica(spec, local_batch_size=2, kernels=kernels)
    replica.parameters.views["dense1.weight"][...] = [[1e4], [0], [-1e4]]
    result = replica.loss_and_gradients(np.ones((2, 1, 2, 2), np.float32), np.array([0, 2]))
    assert result.loss_sum == pytest.approx(8e4)
    assert np.isfinite(replica.gradients.flat).all()
    assert np.isfinite(result.outputs).all()

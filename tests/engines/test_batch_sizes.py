"""The native engine on batches of any size: a sample's prediction is its own, memory follows the batch."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica
from ringlet.kernels import available, load
from ringlet.models import zoo

NETWORKS = {
    "simplecnn": {},
    "resnet20": {},
    "mobilenetv1": {"input_shape": (3, 40, 36), "num_classes": 5, "width": 0.25},
    "unet": {"input_shape": (3, 24, 32), "width": 8, "levels": 3},
    "googlenet": {"input_shape": (3, 64, 64), "num_classes": 4},
    "vgg1dobn": {},
}


def replica(spec, batch_size, parameters=None, **options):
    kernels = load("compiled" if "compiled" in available() else "reference")
    loss = "binary_cross_entropy" if len(spec.output_shape) == 3 else "categorical_cross_entropy"
    made = NativeReplica(spec, loss=loss, local_batch_size=batch_size, kernels=kernels, threads=1, **options)
    made.initialize(0)
    if parameters is not None:
        made.parameters.flat[:] = parameters
    return made


@pytest.mark.parametrize("tuning", ["measured", "rule"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_prediction_does_not_depend_on_the_size_of_the_batch(name, tuning):
    spec = zoo.create(name, **NETWORKS[name])
    inputs = np.random.default_rng(1).normal(size=(19, *spec.input_shape)).astype(np.float32)
    expected = replica(spec, 1, tuning=tuning)
    alone = np.concatenate([expected.predict(inputs[i : i + 1]) for i in range(len(inputs))])
    for batch_size in (2, 3, 5, 8, 16, 19):
        made = replica(spec, batch_size, tuning=tuning)
        together = np.concatenate([made.predict(inputs[i : i + batch_size]) for i in range(0, len(inputs), batch_size)])
        np.testing.assert_array_equal(together, alone, err_msg=f"batch of {batch_size}")


def test_small_batches_to_predict_get_plans_of_their_own():
    spec = zoo.create("simplecnn")
    made, single = replica(spec, 16), replica(spec, 1)
    inputs = np.random.default_rng(3).normal(size=(8, *spec.input_shape)).astype(np.float32)
    alone = np.concatenate([single.predict(inputs[i : i + 1]) for i in range(8)])
    for count in (1, 2, 3, 4, 5, 6, 1, 8, 7):
        np.testing.assert_array_equal(made.predict(inputs[:count]), alone[:count])
    assert 0 < len(made._smaller_plans) <= 4
    targets = np.arange(8)
    before = made.evaluate(inputs, targets).loss_sum
    assert made.evaluate(inputs, targets).loss_sum == before


def test_memory_is_proportional_to_the_batch():
    spec = zoo.create("unet", input_shape=(3, 32, 32), width=8, levels=3)
    one, five = (replica(spec, count).plan.memory_bytes for count in (1, 5))
    assert 4.5 * one < five <= 5 * one


@pytest.mark.parametrize("batch_size", [1, 3, 6, 13])
def test_gradients_of_a_batch_are_the_mean_over_its_samples(batch_size):
    spec = zoo.create("simplecnn")
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(batch_size, *spec.input_shape)).astype(np.float32)
    targets = rng.integers(0, 10, batch_size)
    together, single = replica(spec, batch_size), replica(spec, 1)
    together.loss_and_gradients(inputs, targets)
    total = np.zeros_like(single.gradients.flat)
    for i in range(batch_size):
        single.loss_and_gradients(inputs[i : i + 1], targets[i : i + 1])
        total += single.gradients.flat / batch_size
    scale = np.abs(total).max()
    np.testing.assert_allclose(together.gradients.flat, total, rtol=0, atol=2e-5 * scale)

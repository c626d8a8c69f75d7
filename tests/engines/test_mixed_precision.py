"""Passes in bfloat16: weights, gradients and results in float32, the same bits again, near those of float32."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.engines.engine import create_replica
from ringlet.engines.native import Native
from ringlet.kernels import available
from ringlet.kernels.bfloat16 import BFLOAT16
from ringlet.models import zoo

ENGINES = [("native", kernels) for kernels in available()] + [("torch", None)]
LOSS = "categorical_cross_entropy"


def replica(engine: str, kernels: str | None, dtype: str, model: str = "vgg1dobn"):
    if engine == "torch":
        pytest.importorskip("torch", reason="the engine torch needs PyTorch: pip install 'ringlet[torch]'")
    spec = zoo.create(model, input_shape=(3, 16, 16))
    return create_replica(engine, spec, dtype=dtype, kernels=kernels, local_batch_size=16, seed=3, tuning="rule")


def batch(count: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, 3, 16, 16)).astype("f4"), rng.integers(0, 10, count)


@pytest.fixture(params=ENGINES, ids=lambda pair: "-".join(filter(None, pair)))
def engine(request):
    return request.param


def test_all_that_leaves_a_pass_is_float32(engine):
    found = replica(*engine, "bfloat16")
    assert found.compute_dtype == BFLOAT16
    output = found.loss_and_gradients(*batch())
    arrays = found.parameters.flat, found.gradients.flat, found.state.flat, output.outputs, found.predict(batch()[0])
    assert {array.dtype for array in arrays} == {np.dtype("f4")}


def test_gradients_are_near_those_of_float32(engine):
    mixed, single = (replica(*engine, dtype) for dtype in ("bfloat16", "float32"))
    losses = [each.loss_and_gradients(*batch(), seed=1).loss_sum for each in (mixed, single)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    distance = np.linalg.norm(mixed.gradients.flat - single.gradients.flat) / np.linalg.norm(single.gradients.flat)
    assert 1e-4 < distance < 0.2


def test_probabilities_are_not_rounded(engine):
    outputs = replica(*engine, "bfloat16").predict(batch()[0])
    np.testing.assert_allclose(outputs.sum(axis=1), 1, atol=1e-5)


def test_a_pass_gives_the_same_bits_again(engine):
    passes = []
    for _ in range(2):
        found = replica(*engine, "bfloat16")
        found.loss_and_gradients(*batch(), seed=1)
        passes.append(found.gradients.flat.copy())
    np.testing.assert_array_equal(*passes)


def test_every_batch_size_computes(engine):
    found = replica(*engine, "bfloat16")
    whole = found.predict(batch(16)[0])
    for count in (1, 7, 13):
        np.testing.assert_allclose(found.predict(batch(16)[0][:count]), whole[:count], atol=0.02)


def test_a_plan_in_bfloat16_needs_half_the_memory():
    spec = zoo.create("resnet20")
    mixed, single = (Native().activation_bytes(spec, 32, dtype, LOSS) for dtype in ("bfloat16", "float32"))
    assert 0.5 <= mixed / single < 0.52

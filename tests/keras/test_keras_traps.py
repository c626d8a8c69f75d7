"""The ways in which training on ranks goes wrong unnoticed, or hangs."""

from __future__ import annotations

import pytest

BACKENDS = ("tensorflow", "torch", "jax")
on_all_backends = pytest.mark.parametrize("backend", BACKENDS)


@on_all_backends
@pytest.mark.parametrize("policy", ["global", "model"])
def test_an_overflow_on_one_rank_makes_all_ranks_skip_the_step(checked, backend, policy):
    first, second = (result[policy] for result in checked(backend, "overflow_on_one_rank"))
    assert first == second
    assert first["class"] == "LossScaleOptimizer"
    assert first["inner_is_plain"]
    assert (first["updates"], first["scale"]) == (2, 2.0**14)
    assert first["finite"]


@on_all_backends
def test_gradients_are_accumulated_locally_and_exchanged_once(checked, backend):
    results = checked(backend, "gradient_accumulation")
    assert {"keras", "summed"} <= set(results[0])
    for form in results[0]:
        first, second = (result[form] for result in results)
        assert first["digest"] == second["digest"]
        assert first["distance"] < 1e-6
        assert first["num_exchanges"] == 4  # 12 passes in windows of 3


@on_all_backends
def test_ranks_may_have_different_numbers_of_steps(checked, backend):
    first, second = checked(backend, "uneven_steps")
    assert first["digests"] == second["digests"]
    assert first["num_exchanges"] == second["num_exchanges"] == 10


@on_all_backends
def test_steps_of_few_ranks_count_fully(checked, backend):
    assert checked(backend, "uneven_steps")[0]["distance"] < 1e-6


@on_all_backends
def test_different_numbers_of_epochs_are_refused_on_all_ranks(checked, backend):
    expected = "ranks want different numbers of epochs, [1, 2]: expected the same on all"
    assert checked(backend, "different_epochs") == [expected, expected]


@on_all_backends
def test_missing_gradients_count_as_zeros_and_sparse_ones_become_dense(checked, backend):
    first, second = checked(backend, "missing_and_sparse_gradients")
    assert first["digest"] == second["digest"]
    assert first["extra"] > 0.1  # had a gradient on rank 1 only
    assert first["embedding"] > 0.1
    assert first["unused"] == 0


@on_all_backends
def test_without_any_gradient_keras_says_so(checked, backend):
    assert set(checked(backend, "no_gradients_at_all")) == {"No gradients provided for any variable."}


@pytest.mark.parametrize("backend", ["tensorflow"])
def test_xla_is_refused_with_advice(checked, backend):
    for messages in checked(backend, "xla"):
        assert "expected model.compile(…, jit_compile=False) on the TensorFlow backend" in messages["checked"]
        assert "so_compile_the_model_with_jit_compile_False" in messages["unchecked"]


@pytest.mark.parametrize("backend", ["torch"])
def test_gradients_that_it_has_averaged_are_left_alone(checked, backend):
    first, second = checked(backend, "parallel_data_of_torch")
    assert first["digest"] == second["digest"]
    assert first["distance"] < 1e-6
    assert first["num_exchanges"] == 0
    assert first["num_exchanges_of_others"] == 2

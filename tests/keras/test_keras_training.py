"""After ``fit`` all ranks have the same weights, and those of training alone on the joined batches."""

from __future__ import annotations

import pytest

BACKENDS = ("tensorflow", "torch", "jax")

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "clipped"])
def test_ranks_train_as_one_process_would_on_the_joined_batches(checked, backend, optimizer):
    first, second = (result[optimizer] for result in checked(backend, "fit_equals_training_alone"))
    assert first["digest"] == second["digest"]
    assert first["distance"] < 1e-5 < 0.01 < first["moved"]
    assert first["num_exchanges"] == 16


def test_the_optimizer_keeps_its_class(checked, backend):
    result = checked(backend, "fit_equals_training_alone")[0]
    assert all(of_one["is_plain_class"] for of_one in result.values())


def test_options_of_the_exchange(checked, backend):
    first, second = checked(backend, "options")
    assert first["digests"] == second["digests"]
    distances, scale = first["distances"], first["scale"]
    assert distances["predivide"] < 1e-6
    assert distances["named"] == 0
    assert first["sum_from_double"] < 1e-6
    assert 0 < distances["fp16"] < 2e-3 * scale
    assert distances["fp16"] < distances["bf16"] < 2e-2 * scale


def test_one_call_makes_a_model_distributed(checked, backend):
    first, second = checked(backend, "one_call")
    assert first["is_same"]
    assert first["digest"] == second["digest"]
    assert first["moving_mean"] > 0


def test_one_call_gives_all_ranks_the_same_history(checked, backend):
    first, second = checked(backend, "one_call")
    assert set(first["history"]) == {"loss", "mae", "val_loss", "val_mae"}
    assert first["history"] == second["history"]
    assert first["history"]["val_loss"][-1] < first["history"]["val_loss"][0]


def test_ranks_keep_their_own_random_generators(checked, backend):
    first, second = checked(backend, "one_call")
    assert first["seeds"]
    assert first["seeds"] != second["seeds"]


def test_models_without_weights_and_several_steps_in_one_call(checked, backend):
    first, second = checked(backend, "model_without_weights")
    assert first == second
    assert [first["some_steps"][1], first["one_step"][1]] == [4, 1]


def test_a_model_that_was_trained_alone_can_be_distributed(checked, backend):
    first, second = checked(backend, "distribute_after_training_alone")
    assert first["alone"] != second["alone"]
    assert first["together"] == second["together"]
    assert first["compiled_again"] == second["compiled_again"]

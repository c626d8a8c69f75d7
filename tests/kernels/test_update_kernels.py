"""Optimizer updates against torch.optim over several steps, with and without weight decay."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

SIZE = 1003
NUM_STEPS = 5
RATE = 0.05


@pytest.fixture
def float64_scalars():
    """PyTorch keeps NAdam's product of momenta in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


decays = pytest.mark.parametrize(("weight_decay", "decoupled"), [(0.0, False), (0.1, False), (0.1, True)])


def compare(lab, update, optimizer_class, *, weight_decay, decoupled, num_states, knows_decoupled=False, **options):
    """Run ``update(parameters, gradients, states, step)`` beside PyTorch's optimizer in float64."""
    parameters = lab.parameter(SIZE)
    states = [np.zeros(SIZE, lab.dtype) for _ in range(num_states)]
    oracle = lab.oracle(parameters)
    coupled_decay = weight_decay if knows_decoupled or not decoupled else 0.0
    optimizer = optimizer_class([oracle], lr=RATE, weight_decay=coupled_decay, **options)
    for step in range(1, NUM_STEPS + 1):
        gradients = lab.parameter(SIZE)
        before = gradients.copy()
        oracle.grad = torch.tensor(gradients.astype(np.float64))
        if coupled_decay != weight_decay:
            oracle.data *= 1 - RATE * weight_decay
        optimizer.step()
        update(parameters, gradients, states, step)
        np.testing.assert_array_equal(gradients, before)
    lab.assert_close(parameters, oracle)


@decays
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_equals_torch(lab, momentum, nesterov, weight_decay, decoupled):
    def update(parameters, gradients, states, step):
        lab.kernels.sgd_update(
            parameters, gradients, states[0] if states else None, learning_rate=RATE, momentum=momentum,
            nesterov=nesterov, weight_decay=weight_decay, decoupled=decoupled,
        )  # fmt: skip

    compare(
        lab, update, torch.optim.SGD, weight_decay=weight_decay, decoupled=decoupled, num_states=int(momentum > 0),
        momentum=momentum, nesterov=nesterov,
    )  # fmt: skip


@decays
def test_rmsprop_equals_torch(lab, weight_decay, decoupled):
    def update(parameters, gradients, states, step):
        lab.kernels.rmsprop_update(
            parameters, gradients, *states, learning_rate=RATE, rho=0.9, epsilon=1e-7, weight_decay=weight_decay,
            decoupled=decoupled,
        )  # fmt: skip

    compare(
        lab, update, torch.optim.RMSprop, weight_decay=weight_decay, decoupled=decoupled, num_states=1, alpha=0.9,
        eps=1e-7,
    )  # fmt: skip


@decays
@pytest.mark.parametrize("nesterov", [False, True], ids=["adam", "nadam"])
def test_adam_and_nadam_equal_torch(lab, float64_scalars, nesterov, weight_decay, decoupled):
    def update(parameters, gradients, states, step):
        lab.kernels.adam_update(
            parameters, gradients, *states, learning_rate=RATE, beta1=0.9, beta2=0.99, epsilon=1e-7, step=step,
            weight_decay=weight_decay, decoupled=decoupled, nesterov=nesterov,
        )  # fmt: skip

    options = {"betas": (0.9, 0.99), "eps": 1e-7}
    if nesterov:  # an endless decay of its momentum schedule leaves the constant beta1 of the contract
        options |= {"momentum_decay": 1e6, "decoupled_weight_decay": decoupled}
    optimizer = torch.optim.NAdam if nesterov else torch.optim.AdamW if decoupled else torch.optim.Adam
    compare(
        lab, update, optimizer, weight_decay=weight_decay, decoupled=decoupled, num_states=2, knows_decoupled=True,
        **options,
    )  # fmt: skip


@decays
def test_adadelta_equals_torch(lab, weight_decay, decoupled):
    def update(parameters, gradients, states, step):
        lab.kernels.adadelta_update(
            parameters, gradients, *states, learning_rate=RATE, rho=0.9, epsilon=1e-6, weight_decay=weight_decay,
            decoupled=decoupled,
        )  # fmt: skip

    compare(
        lab, update, torch.optim.Adadelta, weight_decay=weight_decay, decoupled=decoupled, num_states=2, rho=0.9,
        eps=1e-6,
    )  # fmt: skip


def test_adam_s_first_step_is_the_learning_rate_whatever_the_gradient(lab):
    gradients = np.array([1e-3, -1e3, 5.0, -2.0, 1.0], lab.dtype)
    parameters, first, second = np.zeros((3, 5), lab.dtype)
    lab.kernels.adam_update(
        parameters, gradients, first, second, learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8, step=1,
        weight_decay=0.0, decoupled=False, nesterov=False,
    )  # fmt: skip
    np.testing.assert_allclose(parameters, -0.01 * np.sign(gradients), rtol=1e-4)


def test_updates_accept_slices_of_a_flat_buffer(lab):
    """Each rank updates its own slice of the shared parameters."""
    parameters, gradients = lab.parameter(101), lab.parameter(101)
    expected = parameters.copy()
    expected[13:50] -= lab.dtype.type(0.5) * gradients[13:50]
    lab.kernels.sgd_update(
        parameters[13:50], gradients[13:50], None, learning_rate=0.5, momentum=0.0, nesterov=False, weight_decay=0.0,
        decoupled=False,
    )  # fmt: skip
    lab.assert_close(parameters, expected)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1000, 100_003])
def test_sum_of_squares_is_exact_to_float64(lab, size):
    values = lab.parameter(size)
    assert lab.kernels.sum_squares(values) == pytest.approx(math.fsum(float(v) ** 2 for v in values), rel=1e-12)


def test_sum_of_squares_does_not_overflow_in_float32(lab):
    assert lab.kernels.sum_squares(np.full(10, 1e30, lab.dtype)) == pytest.approx(1e61, rel=1e-6)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 1003])
def test_scale_multiplies_in_place(lab, size):
    values = lab.parameter(size)
    expected = values * lab.dtype.type(0.3)
    lab.kernels.scale(values, 0.3)
    lab.assert_close(values, expected)


def adam(lab, parameters, gradients, first, second) -> None:
    lab.kernels.adam_update(
        parameters, gradients, first, second, learning_rate=0.01, beta1=0.9, beta2=0.999, epsilon=1e-8, step=5,
        weight_decay=0.0, decoupled=False, nesterov=False,
    )  # fmt: skip


@pytest.mark.parametrize("size", [5, 1003, 100_003])  # a remainder, vectors, several threads
def test_moments_of_vanished_gradients_vanish(lab, size):
    tiny = np.finfo(lab.dtype).smallest_normal / 2
    parameters, gradients = np.ones(size, lab.dtype), np.zeros(size, lab.dtype)
    first, second = np.full((2, size), tiny, lab.dtype)
    adam(lab, parameters, gradients, first, second)
    np.testing.assert_allclose(parameters, 1.0, rtol=1e-6)
    bound = 0.0 if lab.kernels.name == "compiled" else tiny
    assert first.max() <= bound
    assert second.max() <= bound


def test_an_update_leaves_the_arithmetic_of_the_process_as_it_was(lab):
    adam(lab, *np.ones((4, 100), lab.dtype))
    tiny = np.array([np.finfo(lab.dtype).smallest_normal])
    assert (tiny / 2 > 0).all()
    assert (tiny / 2 * 2 == tiny).all()

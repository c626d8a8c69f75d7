"""Every optimizer against an independent implementation: PyTorch's where the formulas agree, else the bare formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.errors import ConfigError, KernelError, UnknownNameError, UsageError
from ringlet.kernels import available, load
from ringlet.optim import OPTIMIZERS, SGD, Adam, create

SIZE = 37
NUM_STEPS = 20

TORCH_CASES = [
    ("sgd", {}, torch.optim.SGD, {}),
    ("sgd", {"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    ("SGDMomentum", {}, torch.optim.SGD, {"momentum": 0.9}),
    ("sgd", {"momentum": 0.8, "nesterov": True}, torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
    ("sgd", {"weight_decay": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    (
        "sgd",
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        torch.optim.SGD,
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    ),
    ("rmsprop", {"rho": 0.95}, torch.optim.RMSprop, {"alpha": 0.95}),
    ("RMSProp", {"weight_decay": 0.1}, torch.optim.RMSprop, {"alpha": 0.9, "weight_decay": 0.1}),
    ("Adam", {}, torch.optim.Adam, {}),
    ("adam", {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4}, torch.optim.Adam, {"betas": (0.8, 0.99), "eps": 1e-4}),
    ("adam", {"weight_decay": 0.1}, torch.optim.Adam, {"weight_decay": 0.1}),
    ("adam", {"decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
    ("adamw", {}, torch.optim.AdamW, {}),
    ("AdamW", {"weight_decay": 0.2}, torch.optim.AdamW, {"weight_decay": 0.2}),
    ("adadelta", {}, torch.optim.Adadelta, {}),
    ("adadelta", {"rho": 0.8, "weight_decay": 0.1}, torch.optim.Adadelta, {"rho": 0.8, "weight_decay": 0.1}),
]


def run(optimizer, kernels, gradient_at, *, dtype=np.float64, rates=None):
    parameters = np.linspace(-1, 1, SIZE).astype(dtype)
    state = optimizer.init_state(SIZE, dtype)
    for step in range(1, NUM_STEPS + 1):
        rate = None if rates is None else rates[step - 1]
        gradients = gradient_at(step, SIZE).astype(dtype)
        optimizer.update(parameters, gradients, state, step=step, learning_rate=rate, kernels=kernels)
    return parameters


@pytest.mark.parametrize(("name", "ours", "torch_class", "theirs"), TORCH_CASES)
def test_twenty_steps_equal_those_of_pytorch(name, ours, torch_class, theirs, kernels, gradient_at):
    weights = torch.nn.Parameter(torch.linspace(-1, 1, SIZE, dtype=torch.float64))
    reference = torch_class([weights], lr=0.05, **theirs)
    for step in range(1, NUM_STEPS + 1):
        weights.grad = torch.from_numpy(gradient_at(step, SIZE))
        reference.step()
    parameters = run(create(name, learning_rate=0.05, **ours), kernels, gradient_at)
    np.testing.assert_allclose(parameters, weights.detach().numpy(), rtol=1e-10, atol=1e-12)


def nadam(weights, gradients, state, t, *, rate, decay):
    weights = weights - rate * decay * weights
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * gradients
    state["v"] = 0.999 * state.get("v", 0) + 0.001 * gradients**2
    ahead = 0.9 * state["m"] / (1 - 0.9 ** (t + 1)) + 0.1 * gradients / (1 - 0.9**t)
    return weights - rate * ahead / (np.sqrt(state["v"] / (1 - 0.999**t)) + 1e-8)


def decoupled_sgd(weights, gradients, state, t, *, rate, decay):
    state["v"] = 0.9 * state.get("v", 0) + gradients
    return weights - rate * (decay * weights + state["v"])


def decoupled_rmsprop(weights, gradients, state, t, *, rate, decay):
    state["s"] = 0.9 * state.get("s", 0) + 0.1 * gradients**2
    return (1 - rate * decay) * weights - rate * gradients / (np.sqrt(state["s"]) + 1e-8)


def decoupled_adadelta(weights, gradients, state, t, *, rate, decay):
    state["s"] = 0.9 * state.get("s", 0) + 0.1 * gradients**2
    delta = state.get("d", np.zeros_like(weights))
    step = gradients * np.sqrt(delta + 1e-6) / np.sqrt(state["s"] + 1e-6)
    state["d"] = 0.9 * delta + 0.1 * step**2
    return (1 - rate * decay) * weights - rate * step


@pytest.mark.parametrize(
    ("name", "ours", "formula", "decay"),
    [
        ("nadam", {}, nadam, 0.0),
        ("Nadam", {"decay": 0.1}, nadam, 0.1),
        ("SGDMomentum", {"decay": 0.1}, decoupled_sgd, 0.1),
        ("rmsprop", {"decay": 0.1}, decoupled_rmsprop, 0.1),
        ("adadelta", {"weight_decay": 0.1, "decoupled": True}, decoupled_adadelta, 0.1),
    ],
)
def test_twenty_steps_equal_the_bare_formula(name, ours, formula, decay, kernels, gradient_at):
    weights, state = np.linspace(-1, 1, SIZE), {}
    for step in range(1, NUM_STEPS + 1):
        weights = formula(weights, gradient_at(step, SIZE), state, step, rate=0.05, decay=decay)
    parameters = run(create(name, learning_rate=0.05, **ours), kernels, gradient_at)
    np.testing.assert_allclose(parameters, weights, rtol=1e-10, atol=1e-12)


ELEMENT_WISE = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("rmsprop", {"decay": 0.01}),
    ("adam", {}),
    ("adamw", {}),
    ("nadam", {"weight_decay": 0.01}),
    ("adadelta", {}),
]


@pytest.mark.parametrize("implementation", available())
@pytest.mark.parametrize(("name", "hyperparameters"), ELEMENT_WISE)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_updating_two_parts_equals_updating_the_whole_bit_for_bit(implementation, name, hyperparameters, data):
    size = data.draw(st.integers(1, 200), "size")
    cut = data.draw(st.integers(0, size), "cut")
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), "dtype")
    random = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    optimizer, kernels = create(name, **hyperparameters), load(implementation)
    whole = random.normal(size=size).astype(dtype)
    parts = whole.copy()
    state = optimizer.init_state(size, dtype)
    part_state = optimizer.init_state(size, dtype)
    for step in (1, 2, 3):
        gradients = random.normal(size=size).astype(dtype)
        optimizer.update(whole, gradients, state, step=step, kernels=kernels)
        for part in (slice(0, cut), slice(cut, size)):
            own = {key: values[part] for key, values in part_state.items()}
            optimizer.update(parts[part], gradients[part], own, step=step, kernels=kernels)
    assert parts.tobytes() == whole.tobytes()
    assert all(part_state[key].tobytes() == state[key].tobytes() for key in state)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS.names() if name != "lars"])
def test_float32_stays_float32_and_close_to_float64(name, kernels, gradient_at):
    single = run(create(name), kernels, gradient_at, dtype=np.float32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, run(create(name), kernels, gradient_at), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS.names() if name != "lars"])
def test_an_update_leaves_the_gradients_alone(name, kernels, gradient_at):
    gradients = gradient_at(1, SIZE)
    before = gradients.copy()
    optimizer = create(name, weight_decay=0.1)
    optimizer.update(np.ones(SIZE), gradients, optimizer.init_state(SIZE, float), step=1, kernels=kernels)
    np.testing.assert_array_equal(gradients, before)


def test_a_rate_given_with_the_update_replaces_the_optimizers_own(kernels, gradient_at):
    scheduled = run(create("adam", learning_rate=5.0), kernels, gradient_at, rates=[0.01] * NUM_STEPS)
    np.testing.assert_array_equal(scheduled, run(create("adam", learning_rate=0.01), kernels, gradient_at))


def test_kernels_are_loaded_when_none_are_given(gradient_at):
    parameters = np.zeros(SIZE)
    create("sgd", learning_rate=1.0).update(parameters, gradient_at(1, SIZE), {}, step=1)
    np.testing.assert_array_equal(parameters, -gradient_at(1, SIZE))


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_an_optimizer_is_rebuilt_from_its_name_and_hyperparameters(name):
    optimizer = create(name, learning_rate=0.3)
    assert create(optimizer.name, **optimizer.values()) == optimizer


def test_every_optimizer_documents_its_formula_and_paper():
    for name in OPTIMIZERS.names():
        text = type(create(name)).__doc__ or ""
        assert "=" in text, name
        assert any(year in text for year in ("2012", "2013", "2015", "2016", "2017", "2019")), name


def test_default_learning_rates_are_the_usual_ones():
    rates = {name: create(name).learning_rate for name in OPTIMIZERS.names()}
    assert rates == {
        "sgd": 0.01, "rmsprop": 0.001, "adam": 0.001, "adamw": 0.001, "nadam": 0.001, "adadelta": 1.0, "lars": 0.1,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Adam", "SGD", "SGDMomentum", "RMSProp", "ADAMW", "nAdam"])
def test_names_are_accepted_in_any_case(name):
    assert create(name).name == name.lower().removesuffix("momentum")


def test_an_unknown_name_is_an_error_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match=r"unknown optimizer 'adan'.*Did you mean 'adam'"):
        create("adan")


def test_an_unknown_hyperparameter_names_the_optimizers_own():
    with pytest.raises(ConfigError, match=r"momentun: no such option.*Did you mean 'momentum'.*'sgd'.*nesterov"):
        create("sgd", momentun=0.9)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("sgd", {"momentum": 1.0}, r"optimizer 'sgd': momentum: 1\.0 is out of range, expected less than 1"),
        ("sgd", {"learning_rate": 0}, r"learning_rate: 0 is out of range, expected greater than 0"),
        ("sgd", {"learning_rate": float("nan")}, r"learning_rate: nan is not a finite number"),
        ("sgd", {"learning_rate": "0.1"}, r"learning_rate: expected a number, received '0\.1'"),
        ("sgd", {"nesterov": 1}, r"nesterov: expected true or false, received 1"),
        ("sgd", {"nesterov": True}, r"nesterov: needs momentum > 0"),
        ("adam", {"beta2": -0.1}, r"beta2: -0\.1 is out of range, expected at least 0"),
        ("adam", {"epsilon": 0.0}, r"epsilon: 0\.0 is out of range"),
        ("adam", {"learning_rate": True}, r"learning_rate: expected a number, received true"),
        ("lars", {"trust": -1}, r"trust: -1 is out of range"),
        ("adam", {"decay": 0.1, "weight_decay": 0.1}, r"decay: contradicts weight_decay = 0\.1"),
    ],
)
def test_a_value_out_of_range_is_named_with_what_is_allowed(name, values, message):
    with pytest.raises(ConfigError, match=message):
        create(name, **values)


def test_decay_is_decoupled_weight_decay():
    assert create("sgd", decay=0.1) == SGD(weight_decay=0.1, decoupled=True)
    assert create("lars", decay=0.1).weight_decay == 0.1  # which knows no other


def test_whole_numbers_become_floats():
    assert type(create("sgd", learning_rate=1).learning_rate) is float


def test_arrays_that_do_not_fit_are_refused():
    optimizer = Adam()
    state = optimizer.init_state(4, np.float32)
    with pytest.raises(KernelError, match=r"gradients has 5 elements"):
        optimizer.update(np.zeros(4, np.float32), np.zeros(5, np.float32), state, step=1)
    with pytest.raises(KernelError, match=r"gradients has 4 elements of float64"):
        optimizer.update(np.zeros(4, np.float32), np.zeros(4), state, step=1)
    with pytest.raises(KernelError, match=r"expected a flat, contiguous array"):
        optimizer.update(np.zeros(8, np.float32)[::2], np.zeros(4, np.float32), state, step=1)
    with pytest.raises(KernelError, match=r"state has no 'first'"):
        optimizer.update(np.zeros(4, np.float32), np.zeros(4, np.float32), {}, step=1)


def test_step_zero_is_refused():
    with pytest.raises(UsageError, match=r"steps count from 1"):
        SGD().update(np.zeros(1), np.zeros(1), {}, step=0)

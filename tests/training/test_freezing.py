"""Parts of a network that rest, learn at rates of their own, or begin to learn later."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlet import Trainer
from ringlet.errors import ConfigError
from ringlet.models import zoo
from ringlet.models.parts import matching

SMALL = {"model": "vgg1bn", "dataset": "digits", "num_epochs": 1, "steps_per_epoch": 3, "batch_size": 16}
OPTIMIZERS = {"sgd": {"momentum": 0.9, "weight_decay": 0.1}, "adamw": {}, "lars": {"weight_decay": 0.1}}


def tensors(trainer: Trainer) -> dict[str, Any]:
    return {
        name: view.copy() for name, view in (trainer.replica.parameters.views | trainer.replica.state.views).items()
    }


def changed(before: dict[str, Any], trainer: Trainer) -> set[str]:
    return {name for name, values in tensors(trainer).items() if not np.array_equal(values, before[name])}


@pytest.fixture
def make() -> Callable[..., Trainer]:
    return lambda **options: Trainer(**{**SMALL, **options})


def test_patterns_name_nodes_parameters_and_parts_of_the_network() -> None:
    spec = zoo.create("vgg1bn")
    names = [info.name for info in spec.parameters]
    assert matching(spec, ["head"], "freeze") == {"dense2.weight", "dense2.bias"}
    assert matching(spec, ["backbone"], "freeze") == set(names) - {"dense2.weight", "dense2.bias"}
    assert matching(spec, ["*.bias", "!dense*"], "freeze") == {"conv1.bias", "conv2.bias"}
    assert matching(spec, ["..norm1"], "freeze") == {"conv1.weight", "conv1.bias", "norm1.scale", "norm1.shift"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"freeze": ("convolution*",)}, "freeze: 'convolution*' matches no parameter of 'vgg1bn'; its nodes"),
        ({"freeze": ("..conv9",)}, "'vgg1bn' has no node 'conv9'"),
        ({"rates": ("backbone",)}, "expected PART=FACTOR"),
        ({"rates": ("backbone=-1",)}, "with a factor above 0"),
        ({"unfreeze_at": 2}, "nothing is frozen"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any], words: str, make: Callable[..., Trainer]) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        make(**options)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_frozen_keeps_every_bit_and_its_statistics(name: str, make: Callable[..., Trainer]) -> None:
    trainer = make(freeze=("backbone",), optimizer=name, clip_norm=1.0, accumulate=3, **OPTIMIZERS[name])
    before = tensors(trainer)
    trainer.fit(1)
    assert changed(before, trainer) == {"dense2.weight", "dense2.bias"}
    assert trainer.remarks[-1].startswith("frozen: ")


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_frozen_part_between_others_passes_its_gradient_on(engine: str, make: Callable[..., Trainer]) -> None:
    """Batch norm that rests uses running statistics in training too; PyTorch's autograd is the reference."""
    torch = pytest.importorskip("torch")
    trainer = make(freeze=("norm*", "conv2.weight"), engine=engine, dtype="float64", model="vgg1bn")
    replica, generator = trainer.replica, np.random.default_rng(0)
    for name, view in replica.state.views.items():
        view[:] = generator.uniform(0.5, 1.5, view.shape) + ("mean" in name) * -1
    inputs, labels = generator.normal(size=(6, 1, 8, 8)), np.arange(6)
    replica.loss_and_gradients(inputs, labels)
    functional = torch.nn.functional
    own = {name: torch.tensor(view) for name, view in (replica.parameters.views | replica.state.views).items()}
    for name in replica.parameters.views:
        own[name].requires_grad_(name not in replica.frozen)
    x = torch.tensor(inputs)
    for number in (1, 2):
        x = functional.conv2d(x, own[f"conv{number}.weight"], own[f"conv{number}.bias"], padding=1)
        statistics = (own[f"norm{number}.{role}"] for role in ("running_mean", "running_var", "scale", "shift"))
        x = functional.batch_norm(x, *statistics, training=False).relu()
    x = functional.max_pool2d(x, 2).flatten(1)
    x = functional.linear(x, own["dense1.weight"], own["dense1.bias"]).relu()
    x = functional.linear(x, own["dense2.weight"], own["dense2.bias"])
    functional.cross_entropy(x, torch.tensor(labels)).backward()
    for name, gradient in replica.gradients.views.items():
        expected = 0 if name in replica.frozen else own[name].grad.numpy()
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_frozen_network_has_no_backward_calls_before_what_learns(make: Callable[..., Trainer]) -> None:
    calls = [kernel for kernel, _, _ in make(freeze=("backbone",)).replica.plan.training_calls]
    assert [kernel for kernel in calls if "backward" in kernel] == ["dense_backward_weight", "bias_backward"]


def test_a_rate_of_its_own_is_a_factor_of_each_update(make: Callable[..., Trainer]) -> None:
    options = {"optimizer": "sgd", "learning_rate": 0.1, "steps_per_epoch": 1}
    plain, slow = make(**options), make(**options, rates=("*=0.5", "head=0.25"))
    before = tensors(plain)
    plain.fit(1)
    slow.fit(1)
    for name in plain.replica.parameters.views:
        factor = 0.25 if name.startswith("dense2") else 0.5
        step, own = (trainer.replica.parameters.views[name] - before[name] for trainer in (plain, slow))
        np.testing.assert_allclose(own, factor * step, rtol=1e-3, atol=1e-7)


def test_what_is_unfrozen_learns_from_that_epoch_on_as_if_it_began_there(make: Callable[..., Trainer]) -> None:
    trainer = make(freeze=("backbone",), unfreeze_at=2)
    before = tensors(trainer)
    trainer.fit(1)
    assert changed(before, trainer) == {"dense2.weight", "dense2.bias"}
    middle = tensors(trainer)
    trainer.fit(1)
    largest = np.abs(trainer.replica.parameters.views["dense1.weight"] - middle["dense1.weight"]).max()
    assert 0 < largest < 4 * trainer.optimizer.learning_rate, "Adam counts its steps from the first that it takes"
    assert changed(middle, trainer) == set(middle)


def test_a_run_that_is_unfrozen_resumes_exactly(make: Callable[..., Trainer]) -> None:
    options = {"freeze": ("backbone",), "unfreeze_at": 2, "rates": ("backbone=0.1",), "shards": 2, "run_dir": "run"}
    whole = make(**options | {"run_dir": None})
    whole.fit(3)
    for epochs in (1, 2, 3):
        resumed = make(**options, checkpoint_every="1 epoch")
        resumed.fit(epochs, resume="auto")
    for name, values in tensors(whole).items():
        np.testing.assert_array_equal(tensors(resumed)[name], values)

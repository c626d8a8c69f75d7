"""Optimizers by name, as configurations and command lines spell them."""

from __future__ import annotations

from typing import Any

from ringlet.errors import ConfigError, UnknownNameError
from ringlet.optim.adadelta import Adadelta
from ringlet.optim.adam import Adam, AdamW, Nadam
from ringlet.optim.base import Optimizer
from ringlet.optim.lars import LARS
from ringlet.optim.options import build, declared
from ringlet.optim.rmsprop import RMSProp
from ringlet.optim.sgd import SGD

_OPTIMIZERS: dict[str, type[Optimizer]] = {
    optimizer.name: optimizer for optimizer in (SGD, RMSProp, Adam, AdamW, Nadam, Adadelta, LARS)
}
_PRESETS: dict[str, tuple[str, dict[str, Any]]] = {"sgdmomentum": ("sgd", {"momentum": 0.9})}
"""Names that stand for another optimizer with other defaults."""


def names() -> list[str]:
    """The names of all optimizers."""
    return list(_OPTIMIZERS)


def options(name: str) -> dict[str, float | bool]:
    """The hyper-parameters of the optimizer ``name`` with their defaults."""
    return create(name).hyperparameters()


def create(name: str, **hyperparameters: Any) -> Optimizer:
    """The optimizer called ``name`` (in any case), for instance ``create("sgd", learning_rate=0.1, momentum=0.9)``.

    ``SGDMomentum`` is ``sgd`` with momentum 0.9. ``decay`` is short for a decoupled ``weight_decay``.
    """
    key, presets = _PRESETS.get(name.lower(), (name.lower(), {}))
    if key not in _OPTIMIZERS:
        raise UnknownNameError("optimizer", name, [*_OPTIMIZERS, "SGDMomentum"])
    optimizer = _OPTIMIZERS[key]
    values = {**presets, **_expand_decay(optimizer, hyperparameters)}
    return build(optimizer, f"optimizer '{key}'", values)


def _expand_decay(optimizer: type[Optimizer], hyperparameters: dict[str, Any]) -> dict[str, Any]:
    """Replace ``decay`` by what it means; LARS, whose decay is always coupled, has no such option."""
    if "decay" not in hyperparameters or optimizer is LARS:
        return hyperparameters
    for name in ("weight_decay", "decoupled"):
        if name in hyperparameters:
            raise ConfigError(
                f"optimizer '{optimizer.name}': decay={hyperparameters['decay']!r} is a decoupled weight_decay and "
                f"contradicts {name}={hyperparameters[name]!r}; give one of them"
            )
    values = {name: value for name, value in hyperparameters.items() if name != "decay"}
    values["weight_decay"] = hyperparameters["decay"]
    if "decoupled" in declared(optimizer):
        values["decoupled"] = True
    return values

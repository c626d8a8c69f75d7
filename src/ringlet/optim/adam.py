"""Adam and its relatives AdamW and Nadam: one kernel, three sets of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from ringlet.kernels.contract import Floats
from ringlet.optim.base import Moment, Optimizer, State
from ringlet.optim.options import flag, fraction, non_negative, positive

_STATE = ("first", "second")


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adaptive moments, t counting steps from 1::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        m  = beta1 * m + (1 - beta1) * g'              m^ = m / (1 - beta1^t)
        v  = beta2 * v + (1 - beta2) * g'²             v^ = v / (1 - beta2^t)
        w -= lr * m^ / (sqrt(v^) + epsilon)

    Kingma and Ba, *Adam: a method for stochastic optimization*, 2015 (arXiv 1412.6980).
    """

    name: ClassVar[str] = "adam"
    learning_rate: float = positive(0.001)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    epsilon: float = positive(1e-8)
    weight_decay: float = non_negative(0.0)
    decoupled: bool = flag(False)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` moment."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        _adam(self, parameters, gradients, state, moment, decoupled=self.decoupled, nesterov=False)


@final
@dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """Adam with decoupled weight decay: ``w -= lr * weight_decay * w``, then Adam's step with the plain gradient.

    Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019 (arXiv 1711.05101).
    """

    name: ClassVar[str] = "adamw"
    learning_rate: float = positive(0.001)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    epsilon: float = positive(1e-8)
    weight_decay: float = non_negative(0.01)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` moment."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        _adam(self, parameters, gradients, state, moment, decoupled=True, nesterov=False)


@final
@dataclass(frozen=True, kw_only=True)
class Nadam(Optimizer):
    """Adam with Nesterov's look-ahead: as Adam, but with a constant beta1::

        m^ = beta1 * m / (1 - beta1^(t+1)) + (1 - beta1) * g' / (1 - beta1^t)

    Dozat, *Incorporating Nesterov momentum into Adam*, ICLR workshop 2016 (without its schedule of beta1).
    """

    name: ClassVar[str] = "nadam"
    learning_rate: float = positive(0.001)
    beta1: float = fraction(0.9)
    beta2: float = fraction(0.999)
    epsilon: float = positive(1e-8)
    weight_decay: float = non_negative(0.0)
    decoupled: bool = flag(False)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` moment."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        _adam(self, parameters, gradients, state, moment, decoupled=self.decoupled, nesterov=True)


def _adam(
    rules: Adam | AdamW | Nadam,
    parameters: Floats,
    gradients: Floats,
    state: State,
    moment: Moment,
    *,
    decoupled: bool,
    nesterov: bool,
) -> None:
    moment.kernels.adam_update(
        parameters,
        gradients,
        state["first"],
        state["second"],
        learning_rate=moment.learning_rate,
        beta1=rules.beta1,
        beta2=rules.beta2,
        epsilon=rules.epsilon,
        step=moment.step,
        weight_decay=rules.weight_decay,
        decoupled=decoupled,
        nesterov=nesterov,
    )

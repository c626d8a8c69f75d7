"""Adam and its relatives AdamW and Nadam: one kernel, three sets of rules."""

from __future__ import annotations

from typing import ClassVar, final

from ringlet.component import option
from ringlet.kernels.contract import Floats
from ringlet.optim.base import Optimizer, State, UpdateContext

_STATE = ("first", "second")


@final
class Adam(Optimizer):
    """Adaptive moments, t counting steps from 1::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        m  = beta1 * m + (1 - beta1) * g'              m^ = m / (1 - beta1^t)
        v  = beta2 * v + (1 - beta2) * g'²             v^ = v / (1 - beta2^t)
        w -= lr * m^ / (sqrt(v^) + epsilon)

    Kingma and Ba, *Adam: a method for stochastic optimization*, 2015 (arXiv 1412.6980).
    """

    name: ClassVar[str] = "adam"
    learning_rate: float = option(0.001, "learning rate", gt=0)
    beta1: float = option(0.9, "share of the first moment that is kept", ge=0, lt=1)
    beta2: float = option(0.999, "share of the second moment that is kept", ge=0, lt=1)
    epsilon: float = option(1e-8, "added to denominators", gt=0)
    weight_decay: float = option(0.0, "weight decay", ge=0)
    decoupled: bool = option(False, "decay weights apart from the gradient")

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` context."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        _adam(self, parameters, gradients, state, context, decoupled=self.decoupled, nesterov=False)


@final
class AdamW(Optimizer):
    """Adam with decoupled weight decay: ``w -= lr * weight_decay * w``, then Adam's step with the plain gradient.

    Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019 (arXiv 1711.05101).
    """

    name: ClassVar[str] = "adamw"
    learning_rate: float = option(0.001, "learning rate", gt=0)
    beta1: float = option(0.9, "share of the first moment that is kept", ge=0, lt=1)
    beta2: float = option(0.999, "share of the second moment that is kept", ge=0, lt=1)
    epsilon: float = option(1e-8, "added to denominators", gt=0)
    weight_decay: float = option(0.01, "weight decay", ge=0)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` context."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        _adam(self, parameters, gradients, state, context, decoupled=True, nesterov=False)


@final
class Nadam(Optimizer):
    """Adam with Nesterov's look-ahead: as Adam, but with a constant beta1::

        m^ = beta1 * m / (1 - beta1^(t+1)) + (1 - beta1) * g' / (1 - beta1^t)

    Dozat, *Incorporating Nesterov momentum into Adam*, ICLR workshop 2016 (without its schedule of beta1).
    """

    name: ClassVar[str] = "nadam"
    learning_rate: float = option(0.001, "learning rate", gt=0)
    beta1: float = option(0.9, "share of the first moment that is kept", ge=0, lt=1)
    beta2: float = option(0.999, "share of the second moment that is kept", ge=0, lt=1)
    epsilon: float = option(1e-8, "added to denominators", gt=0)
    weight_decay: float = option(0.0, "weight decay", ge=0)
    decoupled: bool = option(False, "decay weights apart from the gradient")

    @property
    def state_names(self) -> tuple[str, ...]:
        """``first`` and ``second`` context."""
        return _STATE

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        _adam(self, parameters, gradients, state, context, decoupled=self.decoupled, nesterov=True)


def _adam(
    rules: Adam | AdamW | Nadam,
    parameters: Floats,
    gradients: Floats,
    state: State,
    context: UpdateContext,
    *,
    decoupled: bool,
    nesterov: bool,
) -> None:
    context.kernels.adam_update(
        parameters,
        gradients,
        state["first"],
        state["second"],
        learning_rate=context.learning_rate,
        beta1=rules.beta1,
        beta2=rules.beta2,
        epsilon=rules.epsilon,
        step=context.step,
        weight_decay=rules.weight_decay,
        decoupled=decoupled,
        nesterov=nesterov,
    )

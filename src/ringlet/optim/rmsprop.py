"""Optimizers with running means of squared gradients: RMSProp and Adadelta."""

from __future__ import annotations

from typing import ClassVar, final

from ringlet.component import option
from ringlet.kernels.contract import Floats
from ringlet.optim.base import Optimizer, State, UpdateContext


@final
class RMSProp(Optimizer):
    """Divide the gradient by a running root mean square of itself::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        s  = rho * s + (1 - rho) * g'²
        w -= lr * g' / (sqrt(s) + epsilon)

    Tieleman and Hinton, *Lecture 6.5: rmsprop*, Neural networks for machine learning, 2012.
    """

    name: ClassVar[str] = "rmsprop"
    learning_rate: float = option(0.001, "learning rate", gt=0)
    rho: float = option(0.9, "share of the squared gradients that is kept", ge=0, lt=1)
    epsilon: float = option(1e-8, "added to denominators", gt=0)
    weight_decay: float = option(0.0, "weight decay", ge=0)
    decoupled: bool = option(False, "decay weights apart from the gradient")

    @property
    def state_names(self) -> tuple[str, ...]:
        """``square``: the running mean of squared gradients."""
        return ("square",)

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        context.kernels.rmsprop_update(
            parameters,
            gradients,
            state["square"],
            learning_rate=context.learning_rate,
            rho=self.rho,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )


@final
class Adadelta(Optimizer):
    """Steps in the units of the parameters, from running means of squared gradients and squared steps::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        s  = rho * s + (1 - rho) * g'²
        u  = g' * sqrt(d + epsilon) / sqrt(s + epsilon)
        d  = rho * d + (1 - rho) * u²
        w -= lr * u

    Zeiler, *ADADELTA: an adaptive learning rate method*, 2012 (arXiv 1212.5701), which has no rate: lr is 1.
    """

    name: ClassVar[str] = "adadelta"
    learning_rate: float = option(1.0, "learning rate", gt=0)
    rho: float = option(0.9, "share of the squared gradients that is kept", ge=0, lt=1)
    epsilon: float = option(1e-6, "added to denominators", gt=0)
    weight_decay: float = option(0.0, "weight decay", ge=0)
    decoupled: bool = option(False, "decay weights apart from the gradient")

    @property
    def state_names(self) -> tuple[str, ...]:
        """``square`` and ``delta``: running means of squared gradients and of squared steps."""
        return ("square", "delta")

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        context.kernels.adadelta_update(
            parameters,
            gradients,
            state["square"],
            state["delta"],
            learning_rate=context.learning_rate,
            rho=self.rho,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

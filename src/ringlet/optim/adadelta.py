"""Adadelta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from ringlet.kernels.contract import Floats
from ringlet.optim.base import Moment, Optimizer, State
from ringlet.optim.options import flag, fraction, non_negative, positive


@final
@dataclass(frozen=True, kw_only=True)
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
    learning_rate: float = positive(1.0)
    rho: float = fraction(0.9)
    epsilon: float = positive(1e-6)
    weight_decay: float = non_negative(0.0)
    decoupled: bool = flag(False)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``square`` and ``delta``: running means of squared gradients and of squared steps."""
        return ("square", "delta")

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        moment.kernels.adadelta_update(
            parameters,
            gradients,
            state["square"],
            state["delta"],
            learning_rate=moment.learning_rate,
            rho=self.rho,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

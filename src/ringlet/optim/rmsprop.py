"""RMSProp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from ringlet.kernels.contract import Floats
from ringlet.optim.base import Moment, Optimizer, State
from ringlet.optim.options import flag, fraction, non_negative, positive


@final
@dataclass(frozen=True, kw_only=True)
class RMSProp(Optimizer):
    """Divide the gradient by a running root mean square of itself::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        s  = rho * s + (1 - rho) * g'²
        w -= lr * g' / (sqrt(s) + epsilon)

    Tieleman and Hinton, *Lecture 6.5: rmsprop*, Neural networks for machine learning, 2012.
    """

    name: ClassVar[str] = "rmsprop"
    learning_rate: float = positive(0.001)
    rho: float = fraction(0.9)
    epsilon: float = positive(1e-8)
    weight_decay: float = non_negative(0.0)
    decoupled: bool = flag(False)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``square``: the running mean of squared gradients."""
        return ("square",)

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        moment.kernels.rmsprop_update(
            parameters,
            gradients,
            state["square"],
            learning_rate=moment.learning_rate,
            rho=self.rho,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

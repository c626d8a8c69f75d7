"""Stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from ringlet.kernels.contract import Floats
from ringlet.optim.base import Moment, Optimizer, State
from ringlet.optim.options import flag, fraction, non_negative, positive


@final
@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent with (Nesterov) momentum::

        g' = g + weight_decay * w                      or, decoupled, first  w -= lr * weight_decay * w
        v  = momentum * v + g'
        w -= lr * v                                    with Nesterov  w -= lr * (g' + momentum * v)

    Robbins and Monro, *A stochastic approximation method*, 1951; Polyak, *Some methods of speeding up the convergence
    of iteration methods*, 1964; Sutskever et al., *On the importance of initialization and momentum in deep learning*,
    2013. Decoupled decay: Loshchilov and Hutter, *Decoupled weight decay regularization*, 2019 (arXiv 1711.05101).
    """

    name: ClassVar[str] = "sgd"
    learning_rate: float = positive(0.01)
    momentum: float = fraction(0.0)
    nesterov: bool = flag(False, needs="momentum")
    weight_decay: float = non_negative(0.0)
    decoupled: bool = flag(False)

    @property
    def state_names(self) -> tuple[str, ...]:
        """``velocity``, if there is momentum."""
        return ("velocity",) if self.momentum > 0 else ()

    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        moment.kernels.sgd_update(
            parameters,
            gradients,
            state["velocity"] if self.momentum > 0 else None,
            learning_rate=moment.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

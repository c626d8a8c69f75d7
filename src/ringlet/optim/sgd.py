"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from ringlet.component import option
from ringlet.kernels.contract import Floats
from ringlet.optim.base import Optimizer, State, UpdateContext


@final
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
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"SGDMomentum": {"momentum": 0.9}}
    learning_rate: float = option(0.01, "learning rate", gt=0)
    momentum: float = option(0.0, "share of the last update that is kept", ge=0, lt=1)
    nesterov: bool = option(False, "Nesterov's form of momentum")
    weight_decay: float = option(0.0, "weight decay", ge=0)
    decoupled: bool = option(False, "decay weights apart from the gradient")

    @property
    def state_names(self) -> tuple[str, ...]:
        """``velocity``, if there is momentum."""
        return ("velocity",) if self.momentum > 0 else ()

    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        context.kernels.sgd_update(
            parameters,
            gradients,
            state["velocity"] if self.momentum > 0 else None,
            learning_rate=context.learning_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            decoupled=self.decoupled,
        )

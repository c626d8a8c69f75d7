"""The contract of all optimizers: frozen hyper-parameters and one pure update of a flat slice.

An optimizer object never changes. All that changes from step to step (parameters and state) is passed in, so a rank can
update just its slice of a shared buffer and keep just its slice of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.component import Component, OptionError, Problem, Registry, option
from ringlet.errors import KernelError, UsageError
from ringlet.kernels.contract import Floats, Kernels
from ringlet.optim.segments import Segment, SegmentNorms, stretches

State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class UpdateContext:
    """What one update knows besides its arrays."""

    step: int
    learning_rate: float
    kernels: Kernels
    segments: Sequence[Segment]
    segment_norms: Mapping[str, SegmentNorms] | None


def default_kernels() -> Kernels:
    """The kernels of updates that name none, loaded when first needed."""
    from ringlet.kernels import load

    return load()


OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer", package="ringlet.optim", group="optimizers")


class Optimizer(Component, ABC):
    """A way to turn gradients into new parameters; its options are its hyper-parameters.

    ``learning_rate`` is the rate for updates that name none; a schedule passes its own with each update.
    ``decay`` is short for a ``weight_decay`` that is decoupled from the gradient, where an optimizer has the choice.
    """

    registry: ClassVar[Registry[Any] | None] = OPTIMIZERS
    other_names: ClassVar[tuple[str, ...]] = ("decay",)
    needs_segments: ClassVar[bool] = False
    """Whether ``update`` must be told where each parameter array lies."""
    learning_rate: float = option(0.01, "learning rate", gt=0)

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> dict[str, Any]:
        """``decay`` as what it stands for."""
        if "decay" not in values:
            return values
        for name in ("weight_decay", "decoupled"):
            if name in values:
                problem = f"contradicts {name} = {values[name]}: it is a weight_decay apart from the gradient"
                raise OptionError(cls.title(), [Problem("decay", f"{problem}; give one of them")])
        values = dict(values)
        values["weight_decay"] = values.pop("decay")
        return values | ({"decoupled": True} if "decoupled" in cls.model_fields else {})

    def contradictions(self) -> Iterable[Problem]:
        """Nesterov's form needs a momentum."""
        if getattr(self, "nesterov", False) and not getattr(self, "momentum", 0.0):
            yield Problem("nesterov", "needs momentum > 0: give momentum (0.9 is usual) or leave nesterov out")

    @property
    @abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """The names of the state arrays, each as long as the parameters."""

    @abstractmethod
    def _apply(self, parameters: Floats, gradients: Floats, state: State, context: UpdateContext) -> None:
        """Update ``parameters`` and ``state`` in place; all arrays were checked."""

    def init_state(self, size: int, dtype: DTypeLike) -> dict[str, NDArray[Any]]:
        """The state before the first step, for ``size`` parameters: zeros."""
        return {name: np.zeros(size, dtype) for name in self.state_names}

    def update(
        self,
        parameters: Floats,
        gradients: Floats,
        state: State,
        *,
        step: int,
        learning_rate: float | None = None,
        segments: Sequence[Segment] = (),
        segment_norms: Mapping[str, SegmentNorms] | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        """Make one step in place: ``parameters`` and ``state`` change, ``gradients`` do not.

        All arrays are flat, contiguous, of one floating dtype and equally long: a whole buffer or the same slice of
        each. ``step`` counts updates from 1. ``segments`` say where each parameter array lies in the slice and how it
        learns: those whose first step is still to come do not change, nor does their state, and when they begin the
        optimizer counts their steps from 1. ``segment_norms`` gives norms over arrays that the slice cuts; only
        optimizers with ``needs_segments`` (LARS) look at them.
        """
        rate = self.learning_rate if learning_rate is None else float(learning_rate)
        if step < 1:
            raise UsageError(f"optimizer '{self.name}': step={step}, but steps count from 1")
        self._check_arrays(parameters, gradients, state)
        chosen = default_kernels() if kernels is None else kernels
        parts = stretches(segments, step)
        if parts is None:
            self._apply(parameters, gradients, state, UpdateContext(step, rate, chosen, segments, segment_norms))
            return
        for place, own, pace in parts:
            context = UpdateContext(step - pace.first_step + 1, rate * pace.rate, chosen, own, segment_norms)
            views = {name: state[name][place] for name in self.state_names}
            self._apply(parameters[place], gradients[place], views, context)

    def _check_arrays(self, parameters: Floats, gradients: Floats, state: State) -> None:
        missing = [name for name in self.state_names if name not in state]
        if missing:
            raise KernelError(
                f"optimizer '{self.name}': state has no '{missing[0]}', only {sorted(state)}; make it with init_state"
            )
        arrays = {"parameters": parameters, "gradients": gradients, **{name: state[name] for name in self.state_names}}
        for name, array in arrays.items():
            if array.ndim != 1 or not array.flags.c_contiguous:
                raise KernelError(
                    f"optimizer '{self.name}': {name} has shape {array.shape}, strides {array.strides}; expected a "
                    "flat, contiguous array"
                )
            if array.size != parameters.size or array.dtype != parameters.dtype:
                raise KernelError(
                    f"optimizer '{self.name}': {name} has {array.size} elements of {array.dtype}, but there are "
                    f"{parameters.size} parameters of {parameters.dtype}"
                )

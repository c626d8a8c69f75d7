"""The contract of all optimizers: frozen hyper-parameters and one pure update of a flat slice.

An optimizer object never changes. All that changes from step to step (parameters and state) is passed in, so a rank can
update just its slice of a shared buffer and keep just its slice of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.errors import KernelError, UsageError
from ringlet.kernels.contract import Floats, Kernels
from ringlet.optim.options import check
from ringlet.optim.segments import Segment, SegmentNorms

State = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Moment:
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


class Optimizer(ABC):
    """A way to turn gradients into new parameters; subclasses are frozen dataclasses of hyper-parameters.

    ``learning_rate`` is the rate for updates that name none; a schedule passes its own with each update.
    """

    name: ClassVar[str]
    needs_segments: ClassVar[bool] = False
    """Whether ``update`` must be told where each parameter array lies."""
    learning_rate: float

    def __post_init__(self) -> None:
        check(self, f"optimizer '{self.name}'")

    @property
    @abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """The names of the state arrays, each as long as the parameters."""

    @abstractmethod
    def _apply(self, parameters: Floats, gradients: Floats, state: State, moment: Moment) -> None:
        """Update ``parameters`` and ``state`` in place; all arrays were checked."""

    def hyperparameters(self) -> dict[str, float | bool]:
        """All hyper-parameters by name: what :func:`ringlet.optim.create` needs to make the same optimizer again."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}  # type: ignore[arg-type]

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
        each. ``step`` counts updates from 1. ``segments`` say where each parameter array lies in the slice and
        ``segment_norms`` gives norms over arrays that the slice cuts; only optimizers with ``needs_segments`` (LARS)
        look at the two.
        """
        rate = self.learning_rate if learning_rate is None else float(learning_rate)
        if step < 1:
            raise UsageError(f"optimizer '{self.name}': step={step}, but steps count from 1")
        self._check_arrays(parameters, gradients, state)
        chosen = default_kernels() if kernels is None else kernels
        self._apply(parameters, gradients, state, Moment(step, rate, chosen, segments, segment_norms))

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

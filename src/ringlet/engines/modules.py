"""Replicas of networks that a program brings as objects: what they share, whichever framework computes them.

Parameters and floating state live in the flat buffers of every replica. What floating numbers could not hold is *kept*
beside them: constants (frozen weights, tables), and whole numbers that training changes, such as batch normalisation's
``num_batches_tracked``. Of these the flat state has the difference from the number that was kept, so a strategy treats
it like any statistic: shards that counted alike agree on that count exactly, and a constant is never rounded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.engines.contract import FlatTensors, Floats, Replica
from ringlet.errors import ModelFileError, UsageError
from ringlet.losses import GivenLoss
from ringlet.models.module_spec import ModuleSpec
from ringlet.models.spec import ParameterInfo

Arrays = dict[str, NDArray[Any]]
OwnLoss = Callable[[Any, Any], Any]
"""A loss of the program, of outputs and targets: one value (the mean over the samples), or one for each sample."""


def loss_title(function: OwnLoss) -> str:
    """What a run calls a loss of its program: the name of the function, or of the class of a loss object."""
    return str(getattr(function, "__name__", type(function).__name__))


class ModuleReplica(Replica):
    """A replica of ``spec.module``. Its first values are the module's own; ``first`` has them by name.

    ``own_loss`` is a function of the framework's tensors that takes the place of a named loss. ``options`` are those of
    :class:`~ringlet.engines.contract.Replica`.
    """

    def __init__(self, spec: ModuleSpec, first: Arrays, own_loss: OwnLoss | None, **options: Any) -> None:
        self._first = first
        self.description, self._own_loss = spec, own_loss
        named = {} if own_loss is None else {"loss": GivenLoss(title_given=loss_title(own_loss))}
        super().__init__(spec, first_values=self._first_value, **options | named)
        self._kinds = {tensor.name: tensor.kind for tensor in spec.tensors}

    def _first_value(self, info: ParameterInfo, seed: int, dtype: DTypeLike) -> Floats:
        """What the module began with; counts begin at what is kept of them. There is nothing to draw."""
        del seed
        found = self._first.get(info.name)
        return np.zeros(info.shape, dtype) if found is None else found.astype(dtype, copy=False)

    @final
    def _apply_freeze(self) -> None:
        raise UsageError(
            "parameters of a module are frozen by the module: by requires_grad_(False) or trainable = False"
        )

    def _forget_first(self) -> None:
        """The first values are needed no longer once a pass is made."""
        self._first.clear()

    @abstractmethod
    def kept(self) -> Arrays:
        """Constants, and the numbers that counts are differences from, by name."""

    @abstractmethod
    def take_kept(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Hold other ones, of the same names, types and shapes."""

    @abstractmethod
    def publish(self) -> None:
        """Let the module hold what was learned, for the program to use."""

    def saved(self, values: Floats) -> Arrays:
        """All tensors by the module's names, of flat ``values``: parameters, then state."""
        infos = (*self.spec.parameters, *self.spec.state)
        kept = self.kept()
        found: Arrays = dict(FlatTensors.allocate(infos, values.dtype, values).views)
        return {name: self._whole(name, found.get(name), kept) for name in self._kinds}

    def taken(self, tensors: Mapping[str, NDArray[Any]]) -> Floats:
        """The inverse of :meth:`saved`: keeps what is to be kept, gives the flat values."""
        missing = next((name for name in self._kinds if name not in tensors), None)
        if missing is not None:
            raise ModelFileError(f"tensor '{missing}' of module '{self.spec.name}' is missing")
        self.take_kept({tensor.name: tensors[tensor.name] for tensor in self.description.kept})
        flat = FlatTensors.allocate((*self.spec.parameters, *self.spec.state), self.dtype)
        for name, view in flat.views.items():
            view[...] = 0 if self._kinds[name] == "count" else tensors[name]
        return flat.flat

    def _whole(self, name: str, values: NDArray[Any] | None, kept: Arrays) -> NDArray[Any]:
        if self._kinds[name] == "count":
            assert values is not None, "counts are state"
            return counted(kept[name], values)
        return kept[name] if values is None else values


def counted(kept: NDArray[Any], differences: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers (or truth values) from what is kept of them and their mean differences from it."""
    whole: NDArray[np.int64] = kept.astype(np.int64) + np.rint(differences).astype(np.int64)
    return whole.astype(kept.dtype)


def mean_with_weights(loss: str) -> UsageError:
    """What is wrong where a loss of the program gives a mean of samples that have weights."""
    return UsageError(
        f"loss '{loss}' gives one value for all samples, which their weights cannot be applied to: let it give each "
        "sample's loss (reduction='none')"
    )

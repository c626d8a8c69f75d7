"""The optimizer for ``op=Adasum``: every rank steps by itself, and the ranks' *steps* are combined.

The differences of the parameters before and after the local step are combined by Adasum, tensor by tensor, so that the
combination sees what the optimizer (momentum, Adam) made of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ringlet.named import ArgumentsError, ProcessSet, Reduction
from ringlet.named.adasum import is_power_of_two
from ringlet.torch import operations
from ringlet.torch.compression import Compressor
from ringlet.torch.operations import Scaling
from ringlet.torch.optimizer_class import GradientStateError, WrappedOptimizer, asked_by_grad_scaler


class AdasumOptimizer(WrappedOptimizer):
    """What comes before the user's class; see :func:`ringlet.torch.optimizer.DistributedOptimizer`."""

    _process_set: ProcessSet | None = None

    def prepare(self, process_set: ProcessSet | None, compression: type[Compressor], num_passes: int) -> None:
        """Without a process set it steps as the user's class does."""
        self.backward_passes_per_step = num_passes
        self._compression = compression
        self._process_set = process_set
        if process_set is not None and not is_power_of_two(process_set.size()):
            raise ArgumentsError(
                f"Adasum among {process_set.size()} ranks: expected a power of two, as ranks are combined in pairs"
            )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups."""
        if self._process_set is not None and asked_by_grad_scaler():
            raise GradientStateError(
                "a GradScaler does not work with op=Adasum: ranks step by themselves, and one that skips a step would "
                "keep the others waiting. Use op=Average, or bfloat16, which needs no scaling"
            )
        groups: list[dict[str, Any]] = self.__dict__["param_groups"]
        return groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.__dict__["param_groups"] = groups

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Only a remark: gradients add up locally until ``step``."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Nothing: gradients are not exchanged."""

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Not possible."""
        raise GradientStateError("a step with op=Adasum exchanges the step itself: it cannot skip that")
        yield

    def step(self, closure: Callable[[], Any] | None = None, **options: Any) -> Any:
        """Step locally, then move to where the combined steps of all ranks lead."""
        self.note_step()
        arguments = () if closure is None else (closure,)
        if self._process_set is None:
            return super().step(*arguments, **options)
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        starts = [parameter.detach().clone() for parameter in parameters]
        result = super().step(*arguments, **options)
        with torch.no_grad():
            steps = [
                self._compression.compress(parameter.detach() - start)
                for parameter, start in zip(parameters, starts, strict=True)
            ]
            scaling = Scaling(Reduction.ADASUM)
            combined = operations.allreduce([step for step, _ in steps], None, scaling, self._process_set).run()
            for parameter, start, step, (_, context) in zip(parameters, starts, combined, steps, strict=True):
                parameter.copy_(start + self._compression.decompress(step, context))
        return result

    step.hooked = True  # type: ignore[attr-defined]  # the user's class calls the step hooks

"""Learning rates for many ranks: scaled by their number, and warmed up.

Goyal et al., *Accurate, large minibatch SGD: training ImageNet in 1 hour*, 2017 (arXiv 1706.02677).
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ringlet.named import ArgumentsError, Reduction
from ringlet.named.session import global_process_set

RULES = ("linear", "sqrt", "none")


def scaled_rate(
    rate: float,
    rule: str = "linear",
    *,
    size: int | None = None,
    backward_passes_per_step: int = 1,
    op: Reduction = Reduction.AVERAGE,
) -> float:
    """The learning rate for the batch of all ranks, where ``rate`` is that of one rank's batch.

    ``linear`` multiplies by the number of ranks, ``sqrt`` by its root. Sums of gradients grow with the ranks by
    themselves, and Adasum needs no scaling: then only local passes count.
    """
    if rule not in RULES:
        raise ArgumentsError(f"rule={rule!r} of learning rates: expected one of {', '.join(RULES)}")
    num_ranks = size if size is not None else global_process_set.size()
    factor = backward_passes_per_step * (num_ranks if op is Reduction.AVERAGE else 1)
    if rule == "none":
        return rate
    return float(rate * (factor if rule == "linear" else factor**0.5))


class WarmUp(LRScheduler):
    """Rise linearly from rate / size to the full rate over the first ``num_steps`` calls of ``step``.

    Call ``step`` after every update (then ``num_steps`` is epochs times updates per epoch) or every epoch. To go on
    with another schedule use ``torch.optim.lr_scheduler.SequentialLR`` with this one first.
    """

    def __init__(
        self, optimizer: Optimizer, num_steps: int, *, size: int | None = None, last_epoch: int = -1, **options: Any
    ) -> None:
        if num_steps < 0:
            raise ArgumentsError(f"a warm-up of {num_steps} steps: expected none or more")
        self.num_steps = num_steps
        self.size = size if size is not None else global_process_set.size()
        super().__init__(optimizer, last_epoch, **options)

    def get_lr(self) -> list[Any]:
        """``base / size * (1 + done (size - 1) / num_steps)`` until ``num_steps`` are done, then ``base``."""
        if self.last_epoch >= self.num_steps:
            return list(self.base_lrs)
        factor = (1.0 + self.last_epoch * (self.size - 1) / self.num_steps) / self.size
        return [base * factor for base in self.base_lrs]

"""n-soft-synchronous training: an update as soon as some of the ranks have brought their gradients.

Gupta, Zhang and Wang, *Model accuracy and runtime tradeoff in distributed deep learning: a systematic study*, 2016
(arXiv 1509.04210). Of λ ranks c = ⌊λ / n⌋ gradients, the first that arrive, make an update with their mean. With n = λ
every gradient does, as in :mod:`~ringlet.strategies.asynchronous`. The mean weighs by samples, and the learning rate is
divided by the mean staleness of the gradients, if that is more than one.

One thing differs from the paper: a rank waits until the update with its gradient has been made, instead of computing
another one with the same parameters. So no rank contributes twice to an update, and n = 1 is synchronous training, up
to the order of additions. At the end of an epoch an update takes what the ranks that are left can bring.

See :mod:`~ringlet.strategies.shared_model` for the way of a gradient.
"""

from __future__ import annotations

from ringlet.errors import ConfigError


def group_size(num_ranks: int, n: int) -> int:
    """c = ⌊λ / n⌋: how many of ``num_ranks`` gradients make an update."""
    if not 1 <= n <= num_ranks:
        raise ConfigError(
            f"strategy = softsync:{n} with {num_ranks} workers: expected 1 (all workers in every update) to "
            f"{num_ranks} (one in each)"
        )
    return num_ranks // n

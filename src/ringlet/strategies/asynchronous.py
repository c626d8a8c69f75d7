"""Asynchronous training: no rank waits for another, old gradients count less.

Zhang, Gupta, Lian and Liu, *Staleness-aware async-SGD for distributed deep learning*, 2016 (arXiv 1511.05950). Every
gradient updates the model as soon as it has been computed, with the learning rate divided by its staleness τ (by one if
τ is 0). A gradient is the mean over the samples of one rank, so an epoch has as many updates as there are passes. The
order in which gradients arrive depends on the speed of ranks: no two runs are alike.

See :mod:`~ringlet.strategies.shared_model` for the way of a gradient. Running statistics are those that the last pass
has made of the ones it began with. The parameters of different ranks differ by a few updates within an epoch; at its
end all take the model, which is what is evaluated and saved.
"""

from __future__ import annotations

GROUP_SIZE = 1
"""Gradients of one update."""

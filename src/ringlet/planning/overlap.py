"""How much of an exchange remains visible behind the pass that it hides in.

Messages leave one after the other, each as soon as its gradients are final and the one before has arrived:
``end[k] = max(end[k - 1], ready[k]) + cost[k]``. What lies behind the end of the pass is *exposed*: the step waits
for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringlet.planning.collectives import NOTHING, Cost


class Message(NamedTuple):
    """One message: when it may leave, as a share of the pass, and what it costs."""

    ready: float
    cost: Cost


def total(messages: Sequence[Message]) -> Cost:
    """All messages, one after the other."""
    return sum((message.cost for message in messages), NOTHING)


def exposed(messages: Sequence[Message], pass_seconds: float) -> Cost:
    """What a step waits for, if messages leave during a pass of so many seconds; by cause, as in the total."""
    end = 0.0
    for message in messages:
        end = max(end, message.ready * pass_seconds) + message.cost.seconds
    whole = total(messages)
    visible = max(0.0, end - pass_seconds)
    return whole * (visible / whole.seconds) if whole.seconds > 0 else NOTHING

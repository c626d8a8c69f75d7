"""Where a loss meets the network: the same decision on every engine, so that all compute the same stable form."""

from __future__ import annotations

from dataclasses import dataclass

from ringlet.errors import UnknownNameError
from ringlet.models.spec import ModelSpec

LOSSES = ("categorical_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae")
"""Losses by the names that users write."""

_FUSED_LOSSES = {
    ("softmax", "categorical_cross_entropy"): "softmax_cross_entropy",
    ("sigmoid", "binary_cross_entropy"): "sigmoid_binary_cross_entropy",
    ("sigmoid", "bce_dice"): "sigmoid_bce_dice",
}


@dataclass(frozen=True)
class Head:
    """Where the loss looks: the kernel's loss, the value it reads, and whether the last node is part of it."""

    kind: str
    prediction: str
    skips_last_node: bool


def loss_head(spec: ModelSpec, loss: str) -> Head:
    """How ``loss`` meets the last node: softmax and sigmoid join their cross-entropy, which then sees logits."""
    if loss not in LOSSES:
        raise UnknownNameError("loss", loss, LOSSES)
    last = spec.nodes[-1]
    fused = _FUSED_LOSSES.get((last.op, loss))
    if fused is not None:
        return Head(fused, last.inputs[0], True)
    return Head(loss, last.name, False)

"""The last layer of a network follows from the task: softmax, sigmoid, or none of them (linear)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ringlet.errors import SpecError
from ringlet.models.spec import ModelSpec

LastLayer = Literal["softmax", "sigmoid", "linear"]
_REPLACED = ("softmax", "sigmoid")


def with_last_layer(spec: ModelSpec, wanted: LastLayer) -> ModelSpec:
    """The network with another end, if it ends in softmax or sigmoid; its tensors keep their names."""
    last = spec.nodes[-1]
    if last.op == wanted or (wanted == "linear" and last.op not in _REPLACED):
        return spec
    if last.op not in _REPLACED:
        raise SpecError(
            f"network '{spec.name}' ends in '{last.op}', which {wanted} cannot take the place of: build it with the "
            "last layer that is wanted"
        )
    before = spec.nodes[:-1]
    return ModelSpec(spec.name, before if wanted == "linear" else (*before, replace(last, name=wanted, op=wanted)))

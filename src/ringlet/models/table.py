"""The rows of a network's layer table; printing is not its work.

Flattening moves nothing and computes nothing, so it gets no row. The weights of dense layers (``FC``) are shown as
people read them, (inputs, outputs), although they are stored as (outputs, inputs).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from ringlet.models.spec import ModelSpec, Node, ParameterInfo
from ringlet.operations.attributes import Shape

COLUMNS = ("Layer", "Type", "#Params", "Output shape", "Weights shape", "Padding", "Stride")


@dataclass(frozen=True)
class LayerRow:
    """One layer; what does not apply is empty."""

    index: int
    type: str
    num_parameters: int
    output_shape: Shape
    weights_shape: Shape | None
    padding: str
    stride: str
    name: str
    flops: int

    def cells(self) -> tuple[str, ...]:
        """The texts of the columns ``COLUMNS``."""
        return tuple("" if value is None else str(value) for value in astuple(self)[: len(COLUMNS)])


def layer_rows(spec: ModelSpec) -> list[LayerRow]:
    """The rows of ``spec`` in order."""
    owned: dict[str, list[ParameterInfo]] = {node.name: [] for node in spec.nodes}
    for info in spec.parameters:
        owned[info.node].append(info)
    shown = [node for node in spec.nodes if not node.operation.moves_nothing]
    return [_row(spec, index, node, owned[node.name]) for index, node in enumerate(shown)]


def _row(spec: ModelSpec, index: int, node: Node, infos: list[ParameterInfo]) -> LayerRow:
    weight = next((info.shape for info in infos if info.role == "weight"), None)
    return LayerRow(
        index=index,
        type=node.operation.title or node.op.capitalize(),
        num_parameters=sum(info.size for info in infos),
        output_shape=spec.shapes[node.name],
        weights_shape=weight[::-1] if weight is not None and len(weight) == 2 else weight,
        padding=_extent(node.attributes.get("padding")),
        stride=_extent(node.attributes.get("stride")),
        name=node.name,
        flops=spec.flops[node.name],
    )


def _extent(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return ""
    return str(pair[0]) if pair[0] == pair[1] else str(pair)

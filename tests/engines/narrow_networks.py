"""Networks of the zoo with fewer channels: the same graphs, for checks that do not depend on how wide they are."""

from __future__ import annotations

from ringlet.models.spec import ModelSpec, Node

DIVISORS = {"vgg11": 4, "vgg16_bn": 4, "googlenet": 4, "inceptionv3": 12}
"""Of the families that have no option for their width and millions of parameters."""


def narrowed(spec: ModelSpec, family: str) -> ModelSpec:
    """The network with a share of the filters of each convolution, if its family is wide."""
    divisor = DIVISORS.get(family, 1)
    return ModelSpec(spec.name, tuple(_narrowed(node, divisor) for node in spec.nodes))


def _narrowed(node: Node, divisor: int) -> Node:
    if node.op != "conv2d":
        return node
    filters = max(1, node.attributes["filters"] // divisor)
    return Node(node.name, node.op, node.inputs, {**node.attributes, "filters": filters})

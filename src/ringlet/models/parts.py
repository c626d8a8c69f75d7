"""Parts of a network by patterns: what is to rest, or to learn at a rate of its own.

A pattern is compared with the names of nodes and of their tensors (``conv3``, ``conv3.weight``); ``*``, ``?`` and
``[…]`` mean what they mean in file names. ``head`` is the last node with parameters, ``backbone`` all before it,
``..conv3`` all nodes up to ``conv3``. A pattern after ``!`` takes away again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from ringlet.errors import ConfigError
from ringlet.models.spec import ModelSpec, ParameterInfo

BACKBONE, HEAD, UP_TO, NOT = "backbone", "head", "..", "!"


def matching(spec: ModelSpec, patterns: Sequence[str], option: str) -> frozenset[str]:
    """The names of the parameters of ``spec`` that ``patterns`` choose; one that chooses nothing is an error."""
    chosen: set[str] = set()
    for pattern in patterns:
        found = _matching(spec, pattern.removeprefix(NOT).strip(), option)
        chosen = chosen - found if pattern.startswith(NOT) else chosen | found
    return frozenset(chosen)


def head_of(spec: ModelSpec) -> str:
    """The last node with parameters."""
    return spec.parameters[-1].node if spec.parameters else ""


def _matching(spec: ModelSpec, pattern: str, option: str) -> set[str]:
    head = head_of(spec)
    if pattern in (BACKBONE, HEAD):
        return {info.name for info in spec.parameters if (info.node == head) == (pattern == HEAD)}
    if pattern.startswith(UP_TO):
        return _names(_up_to(spec, pattern.removeprefix(UP_TO), option))
    found = _names(
        info for info in spec.parameters if fnmatchcase(info.node, pattern) or fnmatchcase(info.name, pattern)
    )
    if not found:
        nodes = list(dict.fromkeys(info.node for info in spec.parameters))
        shown = ", ".join(nodes[:4]) + (f", …, {nodes[-1]}" if len(nodes) > 4 else "")
        raise ConfigError(
            f"{option}: '{pattern}' matches no parameter of '{spec.name}'; its nodes with parameters are {shown}. "
            f"{BACKBONE} and {HEAD} also serve, and {UP_TO}NODE for all up to one"
        )
    return found


def _up_to(spec: ModelSpec, last: str, option: str) -> Iterable[ParameterInfo]:
    order = {node.name: place for place, node in enumerate(spec.nodes)}
    if last not in order:
        raise ConfigError(f"{option}: '{UP_TO}{last}': '{spec.name}' has no node '{last}'")
    return (info for info in spec.parameters if order[info.node] <= order[last])


def _names(infos: Iterable[ParameterInfo]) -> set[str]:
    return {info.name for info in infos}

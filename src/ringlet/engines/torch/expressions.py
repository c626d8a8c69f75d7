"""Operations without tensors of their own as expressions of PyTorch, in text: for the engine and for exports.

They speak of ``torch`` and ``functional`` (``torch.nn.functional``). Nothing but numbers that a spec has checked and
the given names of variables gets into the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ringlet.kernels.contract import ARCTANH_LIMIT
from ringlet.models.attributes import Shape
from ringlet.models.pooling import pool_pads

_LIMIT = 1 - 2 * float(np.finfo(np.float32).eps)

_FUNCTIONS = {
    "relu": "functional.relu({x})",
    "relu6": "functional.relu6({x})",
    "sigmoid": "torch.sigmoid({x})",
    "tanh": "torch.tanh({x})",
    "log_sigmoid": "functional.logsigmoid({x})",
    "arctanh": f"{{x}}.clamp({-_LIMIT!r}, {_LIMIT!r}).atanh().clamp({-ARCTANH_LIMIT}, {ARCTANH_LIMIT})",
    "softmax": "torch.softmax({x}, 1)",
    "flatten": "{x}.flatten(1)",
    "global_avg_pool2d": "{x}.mean((2, 3))",
    "global_max_pool2d": "{x}.amax((2, 3))",
}
_POOLS = {"max_pool2d": "max", "avg_pool2d": "avg"}

WITHOUT_TENSORS = frozenset({*_FUNCTIONS, *_POOLS, "leaky_relu", "add", "concat"})
"""The operations that :func:`expression` knows."""


def expression(op: str, attributes: Mapping[str, Any], names: Sequence[str], source: Shape, shape: Shape) -> str:
    """The operation of the variables ``names``; ``source`` is the shape of the first, ``shape`` that of the result."""
    x = names[0]
    if op in _FUNCTIONS:
        return _FUNCTIONS[op].format(x=x)
    if op in _POOLS:
        return _pool(_POOLS[op], attributes, x, source, shape)
    if op == "leaky_relu":
        return f"functional.leaky_relu({x}, {attributes['slope']!r})"
    return " + ".join(names) if op == "add" else f"torch.cat(({', '.join(names)}), 1)"


def _pool(kind: str, attributes: Mapping[str, Any], x: str, source: Shape, shape: Shape) -> str:
    """PyTorch pads both sides alike and counts padding's windows its own way, so uneven padding is spelled out."""
    (top, bottom), (left, right) = pool_pads(attributes, source, shape)
    window = f"{attributes['kernel']}, {attributes['stride']}"
    extra = ", count_include_pad=False" if kind == "avg" else ""
    if (top, left) == (bottom, right):
        padding = "" if (top, left) == (0, 0) else f", padding={(top, left)}"
        return f"functional.{kind}_pool2d({x}, {window}{padding}{extra if padding else ''})"
    pads = (left, right, top, bottom)
    if kind == "max":
        return f'functional.max_pool2d(functional.pad({x}, {pads}, value=float("-inf")), {window})'
    ones = f"functional.pad(torch.ones_like({x}[:1, :1]), {pads})"
    mean = f"functional.avg_pool2d(functional.pad({x}, {pads}), {window})"
    return f"{mean} / functional.avg_pool2d({ones}, {window})"

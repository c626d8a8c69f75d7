"""Sums of several arrays along a binary tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringlet.kernels.contract import Floats


def add_tree(inputs: Sequence[Floats], tree: Sequence[int], out: Floats) -> None:
    """``tree`` in postfix: a number >= 0 pushes that input, -1 adds the two on top."""
    if any(array.size != out.size or array.dtype != out.dtype for array in inputs):
        raise ValueError("flat arrays must have the same size and dtype")
    stack: list[Floats] = []
    for item in tree:
        if item >= 0:
            stack.append(inputs[item])
        elif item == -1 and len(stack) > 1:
            right = stack.pop()
            stack[-1] = stack[-1] + right
        else:
            raise ValueError("a tree holds numbers of inputs and -1, which adds two operands that come before it")
    if len(stack) != 1:
        raise ValueError(f"a tree leaves exactly one sum, this one leaves {len(stack)}")
    np.copyto(out, stack[0])

"""What ranks tell each other about a request: everything that must agree, in words that can be compared.

Names often end in a number that grows (``allreduce.noname.17``). It is told apart from the rest, so that the same
request under the next number is known already.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ringlet.named.requests import Reduction

NO_NUMBER = 0xFFFFFFFF
"""In place of the number, for names that end in none."""
Arrays = tuple[tuple[str, tuple[int, ...]], ...]
"""The dtype, as text, and the shape of each array."""


class Key(NamedTuple):
    """A name in two parts."""

    stem: str
    number: int

    def __str__(self) -> str:
        return self.stem if self.number == NO_NUMBER else f"{self.stem}{self.number}"


@lru_cache(16384)
def split_name(name: str) -> Key:
    """The parts of a name: its last digits are the number, unless they begin with a zero or are very many."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or not digits.isascii() or len(digits) > 9 or (digits[0] == "0" and digits != "0"):
        return Key(name, NO_NUMBER)
    return Key(stem, int(digits))


@dataclass(frozen=True)
class Signature:
    """One kind of request. ``arrays`` of an allgather or alltoall have no first axis: it may differ between ranks.

    ``detail`` holds what else must agree: a range of a shared buffer, the ranks of a new process set. ``refusal`` is
    why the rank that submitted it must refuse it; then all must.
    """

    stem: str
    kind: str
    arrays: Arrays = ()
    op: Reduction = Reduction.SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    detail: tuple[int, ...] = ()
    refusal: str = ""

    def encode(self) -> str:
        """As text, equal for equal signatures."""
        shapes = [[dtype, *shape] for dtype, shape in self.arrays]
        scales = [self.prescale.hex(), self.postscale.hex()]
        fields = [self.stem, self.kind, shapes, self.op.value, scales, self.root, list(self.detail), self.refusal]
        return json.dumps(fields, separators=(",", ":"))

    def words(self) -> str:
        """For people."""
        if self.refusal:
            return f"{self.kind} that it had to refuse: {self.refusal}"
        texts = [f"{dtype} of shape {shape}" for dtype, shape in self.arrays]
        told = ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
        parts = [f"{self.kind} of {told}" if texts else self.kind]
        if self.kind in ("allreduce", "reducescatter"):
            parts.append(f"op {self.op.value}")
            if (self.prescale, self.postscale) != (1.0, 1.0):
                parts.append(f"scaled by {self.prescale:g} before and {self.postscale:g} after")
        if self.kind == "broadcast":
            parts.append(f"root {self.root}")
        if self.detail and self.kind == "allreduce":
            number, start, stop = self.detail
            parts.append(f"elements {start} to {stop} of buffer {number}")
        elif self.detail:
            parts.append(f"of {list(self.detail)}")
        return ", ".join(parts)


def decode(text: str) -> Signature:
    """What :meth:`Signature.encode` gave."""
    stem, kind, shapes, op, (pre, post), root, detail, refusal = json.loads(text)
    described = tuple((dtype, tuple(shape)) for dtype, *shape in shapes)
    return Signature(
        stem, kind, described, Reduction(op), float.fromhex(pre), float.fromhex(post), root, tuple(detail), refusal
    )


@lru_cache(256)
def number_dtype(text: str) -> np.dtype[Any]:
    """The dtype of numbers or booleans that a signature names."""
    if text == "bfloat16":
        import ml_dtypes  # noqa: F401  NumPy knows the name from now on

    return np.dtype(text)

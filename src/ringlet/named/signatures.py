"""What ranks tell each other about a submission: everything that must agree, in words that can be compared."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from ringlet.comm.node import dtype_text
from ringlet.errors import CommunicationError
from ringlet.named.kinds import check, check_parts, kind_of
from ringlet.named.reductions import Reduction
from ringlet.named.submissions import Submission

MAX_CACHED = 16384
"""Signatures of submissions that differ; beyond them the cache is emptied."""
Arrays = tuple[tuple[str, tuple[int, ...]], ...]
"""The dtype, as text, and the shape of each array."""


@dataclass(frozen=True)
class Signature:
    """What must agree. ``arrays`` of uneven kinds have no first axis: it may differ between ranks.

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
        kind = kind_of(self.kind)
        texts = [f"{dtype} of shape {shape}" for dtype, shape in self.arrays]
        told = ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
        parts = [f"{self.kind} of {told}" if texts else self.kind]
        if kind.reduces:
            parts.append(f"op {self.op.value}")
            if (self.prescale, self.postscale) != (1.0, 1.0):
                parts.append(f"scaled by {self.prescale:g} before and {self.postscale:g} after")
        if kind.has_root:
            parts.append(f"root {self.root}")
        if self.detail and kind.reduces:
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


@final
class Describer:
    """Signatures of what is submitted among the global ``ranks``, with a cache."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = list(ranks)
        self._cache: dict[Hashable, str] = {}

    def encoded(self, submission: Submission, stem: str, detail: tuple[int, ...] = (), refusal: str = "") -> str:
        """The signature as text; it holds a refusal if the submission makes no sense or ``refusal`` says so."""
        try:
            check_parts(submission, len(self._ranks))
        except CommunicationError as error:
            refusal = refusal or str(error)
        facts = (
            stem, submission.kind, submission.op, submission.prescale, submission.postscale, submission.root, detail,
            refusal, *[(array.dtype, array.shape) for array in submission.inputs],
        )  # fmt: skip
        text = self._cache.get(facts)
        if text is None:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            text = self._cache[facts] = self._signature(submission, stem, detail, refusal).encode()
        return text

    def _signature(self, submission: Submission, stem: str, detail: tuple[int, ...], refusal: str) -> Signature:
        kind = kind_of(submission.kind)
        try:
            check(submission, self._ranks)
        except CommunicationError as error:
            refusal = refusal or str(error)
        described = (
            (dtype_text(array.dtype), array.shape[1:] if kind.is_uneven else array.shape) for array in submission.inputs
        )
        return Signature(
            stem,
            submission.kind,
            tuple(described),
            submission.op if kind.reduces else Reduction.SUM,
            float(submission.prescale) if kind.reduces else 1.0,
            float(submission.postscale) if kind.reduces else 1.0,
            submission.root if kind.has_root else 0,
            detail,
            refusal,
        )

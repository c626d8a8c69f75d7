"""What a rank is about to call, in words that ranks compare; made once for each kind of call."""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np

from ringlet.comm import arrays
from ringlet.comm.channel import layout
from ringlet.comm.channel.elements import Form, form_of
from ringlet.comm.contract import Op
from ringlet.errors import CommunicationError

MAX_REMEMBERED = 4096
"""Kinds of calls; beyond them everything is forgotten and made again."""


class Reduction(NamedTuple):
    """A call that combines values: how, or why it is refused."""

    signature: bytes
    form: Form | None
    refusal: CommunicationError | None


@final
class Calls:
    """Remembers the calls of one communicator."""

    def __init__(self) -> None:
        self._reductions: dict[tuple[str, np.dtype[Any], tuple[int, ...], Op], Reduction] = {}
        self._movements: dict[tuple[str, np.dtype[Any], tuple[int, ...], str], bytes] = {}
        self._plain: dict[str, bytes] = {}

    def reduction(self, collective: str, dtype: np.dtype[Any], shape: tuple[int, ...], op: Op) -> Reduction:
        """A collective that combines arrays of one shape."""
        key = (collective, dtype, shape, op)
        call = self._reductions.get(key)
        if call is None:
            call = _describe_reduction(*key)
            _remember(self._reductions, key, call)
        return call

    def movement(self, collective: str, dtype: np.dtype[Any], shape: tuple[int, ...], detail: str) -> bytes:
        """A collective that only moves values."""
        key = (collective, dtype, shape, detail)
        signature = self._movements.get(key)
        if signature is None:
            signature = layout.signature(f"{collective}({dtype_text(dtype)}, {shape_text(shape)}, {detail})")
            _remember(self._movements, key, signature)
        return signature

    def plain(self, text: str) -> bytes:
        """Any other call."""
        signature = self._plain.get(text)
        if signature is None:
            signature = layout.signature(text)
            _remember(self._plain, text, signature)
        return signature


def _describe_reduction(collective: str, dtype: np.dtype[Any], shape: tuple[int, ...], op: Op) -> Reduction:
    if not isinstance(op, Op):
        raise CommunicationError(f"{op!r} is no operation: expected one of {', '.join(str(known) for known in Op)}")
    signature = layout.signature(f"{collective}({dtype_text(dtype)}, {shape_text(shape)}, {op.value})")
    try:
        arrays.check_reduction(dtype, op)
    except CommunicationError as refusal:
        return Reduction(signature, None, refusal)
    return Reduction(signature, form_of(dtype, op), None)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """A name that tells dtypes apart whose bytes differ."""
    if dtype.names is not None:
        return str(dtype.descr)
    return dtype.name if dtype.isnative else dtype.str


def shape_text(shape: tuple[int, ...]) -> str:
    """As people write it."""
    return f"shape {shape}"


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known[key] = value

"""Python values between ranks, without pickle: see :mod:`ringlet.io.encoding` for what can travel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringlet.errors import DataError, UsageError
from ringlet.io import encoding
from ringlet.named.engine import Engine
from ringlet.named.errors import ArgumentsError
from ringlet.named.requests import Request

_VALUE, _EXCUSE = b"V", b"E"


def broadcast_object(engine: Engine, value: Any, root: int, name: str | None) -> Any:
    """The value of the global rank ``root``; every rank must call. The root gets its own value back as it is."""
    if root not in engine.ranks:
        raise ArgumentsError(f"root {root} is not in the process set: expected one of {list(engine.ranks)}")
    is_root = engine.ranks[engine.rank] == root
    data = _pack(value, f"the value of rank {root}") if is_root else b""
    gathered = _gather(engine, data, name or engine.default_name("broadcast_object"))
    received = _unpack(gathered[engine.ranks.index(root)], root)
    return value if is_root else received


def allgather_object(engine: Engine, value: Any, name: str | None) -> list[Any]:
    """The values of all ranks; every rank must call."""
    data = _pack(value, f"the value of rank {engine.ranks[engine.rank]}")
    gathered = _gather(engine, data, name or engine.default_name("allgather_object"))
    return [_unpack(packed, rank) for packed, rank in zip(gathered, engine.ranks, strict=True)]


def _pack(value: Any, what: str) -> bytes:
    """A value that cannot travel becomes an excuse, so that the other ranks do not wait for it."""
    try:
        return _VALUE + encoding.dumps(value, what)
    except UsageError as error:
        return _EXCUSE + str(error).encode()


def _unpack(data: bytes, rank: int) -> Any:
    if data[:1] == _EXCUSE:
        raise ArgumentsError(data[1:].decode(errors="replace"))
    if data[:1] != _VALUE:
        raise DataError(f"rank {rank} sent no value: was it made by the same version of Ringlet?")
    return encoding.loads(data[1:])


def _gather(engine: Engine, data: bytes, name: str) -> list[bytes]:
    """The bytes of every rank, each behind its length: one collective, whatever their lengths."""
    packed = np.frombuffer(len(data).to_bytes(8, "little") + data, np.uint8)
    [joined] = engine.run(Request("allgather", name, (packed,)))
    everything, parts = joined.tobytes(), []
    while everything:
        end = 8 + int.from_bytes(everything[:8], "little")
        parts.append(everything[8:end])
        everything = everything[end:]
    return parts

"""What a program asks for: a collective with a name, and the handle under which its results appear."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ringlet.comm.contract import Array

Kind = Literal["allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "join"]


class Reduction(Enum):
    """How values of ranks are combined, element by element; the average of whole numbers is cut towards zero."""

    AVERAGE = "average"
    SUM = "sum"
    ADASUM = "adasum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


@dataclass(frozen=True, eq=False)
class Request:
    """One collective as one rank submits it. Arrays must not be touched until it has finished.

    Several ``inputs`` are a group, which runs together. ``outputs`` (allreduce, broadcast) are where results go, may be
    the inputs, and default to new arrays. ``prescale`` multiplies inputs, ``postscale`` results. ``root`` is a rank of
    the whole job, in process sets too. ``splits``: how many rows go to each rank of an alltoall (default: equal parts).
    """

    kind: Kind
    name: str
    inputs: tuple[Array, ...] = ()
    outputs: tuple[Array, ...] | None = None
    op: Reduction = Reduction.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: tuple[int, ...] | None = None

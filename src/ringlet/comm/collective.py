"""A collective, described once: what it takes, what ranks must agree on, and how each kind of communicator does it.

Those that come with Ringlet are in :mod:`~ringlet.comm.reductions` and :mod:`~ringlet.comm.transfers`. Another package
adds one by :func:`register`; from then on ``communicator.call(name, …)``, ``communicator.start(name, …)`` and ``ringlet
bench`` know it. The least it needs is a composition of other collectives::

    def compose(comm, array):
        rows = comm.allgather(array[np.newaxis])
        return rows[: comm.rank + 1].sum(axis=0)


    register(Collective("scan", bind=lambda array: (array,), composed=compose))

What is worth more traffic or time gets a function of its own for a kind of communicator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CommunicationError

Array = NDArray[Any]
Result = TypeVar("Result")


class Op(Enum):
    """How values of ranks are combined, element by element.

    float16 and bfloat16 are accumulated in float32 and rounded once. Of booleans the sum is *or*, the product *and*. An
    average needs a floating or complex dtype.
    """

    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"

    __hash__ = object.__hash__  # members are unique, and every collective looks one up


@final
@dataclass(frozen=True)
class Collective(Generic[Result]):
    """A collective; ``Result`` is what it gives.

    ``bind`` has its signature. ``facts`` and ``prepare`` get the arguments that ``bind`` gives; functions for kinds of
    communicators get the communicator and what ``prepare`` gives. A kind that has no function uses ``composed``.
    Ranks of one machine keep what depends on facts alone, so it costs a lookup.
    """

    name: str
    bind: Callable[..., tuple[Any, ...]]
    """Takes arguments as callers write them; gives all of them in their order, defaults included."""
    composed: Callable[..., Result] | None = None
    """Made of other collectives of the communicator."""
    facts: Callable[..., tuple[Any, ...]] | None = None
    """What must be equal on all ranks: dtypes, shapes, operations, texts. Ranks of one machine compare it."""
    check: Callable[..., None] | None = None
    """``check(*facts)`` refuses what can never work."""
    plan: Callable[..., Any] | None = None
    """``plan(*facts)``: what ``node`` needs to know about them."""
    prepare: Callable[..., tuple[Any, ...]] | None = None
    """``prepare(size, …)`` refuses other arguments of a rank among ``size``; gives what the functions below get."""
    single: Callable[..., Result] | None = None
    """For a rank alone."""
    node: Callable[..., Result] | None = None
    """For ranks of one machine; after the communicator it gets the ``Channel`` and the ``Call`` with its plan."""
    wired: Callable[..., Result] | None = None
    """For ranks that share no memory, by what a ``Wire`` can do: MPI and torch.distributed."""
    layered: Callable[..., Result] | None = None
    """For several machines with several ranks, by ``local`` and ``cross``; default: ``wired`` between all ranks."""
    example: Callable[[NDArray[np.float32], int], tuple[Any, ...]] | None = None
    """``example(values, size)``: bound arguments of a call that moves these float32 numbers; for benchmarks."""

    def __post_init__(self) -> None:
        if self.composed is None and None in (self.single, self.node, self.wired):
            raise ValueError(f"collective '{self.name}' needs functions for single, node and wired, or a composition")

    def checked(self, size: int, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The prepared arguments of a call among ``size`` ranks; raises :class:`CommunicationError`."""
        if self.check is not None and self.facts is not None:
            self.check(*self.facts(*arguments))
        return arguments if self.prepare is None else self.prepare(size, *arguments)


COLLECTIVES: dict[str, Collective[Any]] = {}
"""All collectives by their names."""


def register(collective: Collective[Result]) -> Collective[Result]:
    """Add a collective to :data:`COLLECTIVES`; every rank must do so before it is used."""
    if collective.name in COLLECTIVES:
        raise ValueError(f"there is a collective '{collective.name}' already")
    COLLECTIVES[collective.name] = collective
    return collective


def find(name: str, verb: str = "called") -> Collective[Any]:
    """The collective of this name; an error says that it cannot be ``verb``."""
    if name not in COLLECTIVES:
        raise CommunicationError(f"'{name}' cannot be {verb}: expected one of {', '.join(sorted(COLLECTIVES))}")
    return COLLECTIVES[name]

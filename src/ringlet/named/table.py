"""Who has submitted what: the same table on every rank, because all feed it the same announcements in the same order.

There is no coordinator. In every round each rank announces what it has submitted since; an operation is *ready* when
all ranks that have not joined have announced it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from ringlet.named.signatures import Key, Signature, decode

MAX_KNOWN = 8192
"""Signatures that have numbers; the one that was not used for longest loses its number first."""


@final
class Known:
    """Signatures that travelled once and have had a number since, the same on every rank."""

    def __init__(self, capacity: int = MAX_KNOWN) -> None:
        self._capacity = capacity
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._signatures: dict[int, tuple[str, Signature]] = {}

    def number(self, text: str) -> int | None:
        """Of an encoded signature, if it has one."""
        return self._numbers.get(text)

    def use(self, number: int) -> Signature:
        """The signature with this number, which is needed again."""
        text, signature = self._signatures[number]
        self._numbers.move_to_end(text)
        return signature

    def learn(self, text: str) -> Signature:
        """A signature that travelled as text."""
        number = self._numbers.get(text)
        if number is not None:
            return self.use(number)
        full = len(self._numbers) >= self._capacity
        number = self._numbers.popitem(last=False)[1] if full else len(self._numbers)
        self._numbers[text] = number
        self._signatures[number] = (text, decode(text))
        return self._signatures[number][1]


@dataclass(slots=True)
class Announcement:
    """What one rank tells in one round."""

    requests: list[tuple[Signature, int]] = field(default_factory=list)
    """Signatures and the numbers of their names, in the order of submission."""
    withdrawn: list[tuple[Key, str]] = field(default_factory=list)
    """Requests that it will not wait for any longer, and why."""
    joins: bool = False
    leaves: bool = False


@dataclass(slots=True)
class Operation:
    """Something submitted by at least one rank."""

    key: Key
    signatures: dict[int, Signature] = field(default_factory=dict)
    """By rank."""
    failure: str = ""
    """Why it cannot take place; empty if it can."""
    wrong_arguments: bool = True

    @property
    def signature(self) -> Signature:
        """That of the lowest rank that submitted it; all are equal if there is no failure."""
        return self.signatures[min(self.signatures)]


@dataclass(slots=True)
class Outcome:
    """What a round led to: operations to carry out or to fail, in this order on every rank."""

    decided: list[Operation] = field(default_factory=list)
    last_joined: int | None = None
    """The rank that joined last, once all have joined."""
    leaving: list[int] = field(default_factory=list)
    quiet: bool = False
    """Nobody had anything new."""


@final
class Table:
    """The state of all ranks ``0 … size - 1`` of an engine; ``names`` are what messages call them."""

    def __init__(self, names: Sequence[int], capacity: int = MAX_KNOWN) -> None:
        self._names = list(names)
        self.known = Known(capacity)
        self.waiting: dict[Key, Operation] = {}
        self.joined: dict[int, int] = {}
        """Ranks that have joined, with the round in which they did."""
        self._round = 0

    def advance(self, announcements: Sequence[Announcement]) -> Outcome:
        """Take in what every rank announced; deterministic."""
        self._round += 1
        if self._all_say_the_same(announcements):
            return self._decide_at_once(announcements[0])
        outcome = Outcome(leaving=[rank for rank, told in enumerate(announcements) if told.leaves])
        touched: dict[Key, None] = {}
        newly_joined = False
        for rank, told in enumerate(announcements):
            for signature, number in told.requests:
                key = Key(signature.stem, number)
                operation = self.waiting.get(key)
                if operation is None:
                    operation = self.waiting[key] = Operation(key)
                operation.signatures[rank] = signature
                touched[key] = None
            if told.joins:
                self.joined[rank] = self._round
                newly_joined = True
        outcome.quiet = not (touched or newly_joined or outcome.leaving)
        for key in list(self.waiting) if newly_joined else touched:
            self._decide(key, outcome)
        self._withdraw(announcements, outcome)
        if len(self.joined) == len(self._names):
            outcome.last_joined = max(self.joined, key=lambda rank: (self.joined[rank], rank))
            self.joined.clear()
        return outcome

    def _all_say_the_same(self, announcements: Sequence[Announcement]) -> bool:
        """The usual case: all have submitted the same since the last round, and nothing else is to be considered."""
        first = announcements[0]
        usual = bool(first.requests) and not (first.joins or first.leaves or first.withdrawn or self.joined)
        return (
            usual
            and all(told == first for told in announcements)
            and not (self.waiting and any(Key(of.stem, number) in self.waiting for of, number in first.requests))
        )

    def _decide_at_once(self, told: Announcement) -> Outcome:
        outcome = Outcome()
        for signature, number in told.requests:
            operation = Operation(Key(signature.stem, number), dict.fromkeys(range(len(self._names)), signature))
            if signature.refusal:
                operation.failure = self._objection(operation)
            outcome.decided.append(operation)
        return outcome

    def missing(self, operation: Operation) -> list[int]:
        """Ranks that have neither submitted it nor joined."""
        present = {*operation.signatures, *self.joined}
        return [rank for rank in range(len(self._names)) if rank not in present]

    def _decide(self, key: Key, outcome: Outcome) -> None:
        operation = self.waiting[key]
        if len(operation.signatures) + len(self.joined) < len(self._names) or self.missing(operation):
            return
        del self.waiting[key]
        operation.failure = self._objection(operation)
        outcome.decided.append(operation)

    def _withdraw(self, announcements: Sequence[Announcement], outcome: Outcome) -> None:
        for told in announcements:
            for key, why in told.withdrawn:
                operation = self.waiting.pop(key, None)
                if operation is not None:
                    operation.failure, operation.wrong_arguments = why, False
                    outcome.decided.append(operation)

    def _objection(self, operation: Operation) -> str:
        """Why a complete operation cannot be carried out; empty if it can."""
        signature = operation.signature
        for rank, other in operation.signatures.items():
            if other.refusal:
                return f"rank {self._names[rank]} cannot do it: {other.refusal}"
        if any(other is not signature and other != signature for other in operation.signatures.values()):
            told = "; ".join(
                f"rank {self._names[rank]} submitted {operation.signatures[rank].words()}"
                for rank in sorted(operation.signatures)
            )
            return f"the ranks' requests do not fit together: {told}"
        if self.joined and signature.kind not in ("allreduce", "barrier"):
            absent = ", ".join(str(self._names[rank]) for rank in sorted(self.joined))
            operation.wrong_arguments = False
            return (
                f"rank {absent} has joined and takes part in allreduces and barriers only: expected no "
                f"{signature.kind} until all ranks have joined"
            )
        return ""

"""Who has submitted what: the same table on every rank, because all feed it the same announcements in the same order.

There is no coordinator. In every round each rank announces what it has submitted since; an entry is *ready* when
all ranks that have not joined have announced it.

In a round a record of fixed size travels from every rank, with texts after it if any rank has some. Word 0 of a record
holds flags (bits 0-7), the number of known submissions (8-31) and the bytes of text (32-62). Each further word is a
known submission: the number of its signature (upper 31 bits), the number of its name (lower 32 bits). Texts are JSON:
new signatures, known submissions that found no room, withdrawn ones.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.named.kinds import kind_of, names_of
from ringlet.named.signatures import Signature, decode
from ringlet.named.submissions import Key

MAX_KNOWN = 8192
"""Signatures that have numbers; the one that was not used for longest loses its number first."""
JOINS, LEAVES = 1, 2
FEW = 8
"""So many words of each record are looked at first."""
Words = NDArray[np.int64]


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

    submissions: list[tuple[Signature, int]] = field(default_factory=list)
    """Signatures and the numbers of their names, in the order of submission."""
    withdrawn: list[tuple[Key, str]] = field(default_factory=list)
    """Submissions that it will not wait for any longer, and why."""
    joins: bool = False
    leaves: bool = False


@dataclass(slots=True)
class Entry:
    """Something submitted by at least one rank."""

    key: Key
    signatures: dict[int, Signature] = field(default_factory=dict)
    """By rank."""
    failure: str = ""
    """Why it cannot take place; empty if it can."""
    wrong_arguments: bool = True
    disagrees: bool = False
    """The failure is that ranks' requests do not fit together."""

    @property
    def signature(self) -> Signature:
        """That of the lowest rank that submitted it; all are equal if there is no failure."""
        return self.signatures[min(self.signatures)]


@dataclass(slots=True)
class Outcome:
    """What a round led to: collectives to carry out or to fail, in this order on every rank."""

    decided: list[Entry] = field(default_factory=list)
    last_joined: int | None = None
    """The rank that joined last, once all have joined."""
    leaving: list[int] = field(default_factory=list)
    quiet: bool = False
    """No rank had anything new."""


@final
class Table:
    """The state of all ranks ``0 … size - 1`` of a process set; ``names`` are what messages call them."""

    def __init__(self, names: Sequence[int], capacity: int = MAX_KNOWN) -> None:
        self._names = list(names)
        self.known = Known(capacity)
        self.waiting: dict[Key, Entry] = {}
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
            for signature, number in told.submissions:
                key = Key(signature.stem, number)
                entry = self.waiting.get(key)
                if entry is None:
                    entry = self.waiting[key] = Entry(key)
                entry.signatures[rank] = signature
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
        usual = bool(first.submissions) and not (first.joins or first.leaves or first.withdrawn or self.joined)
        return (
            usual
            and all(told == first for told in announcements)
            and not (self.waiting and any(Key(of.stem, number) in self.waiting for of, number in first.submissions))
        )

    def _decide_at_once(self, told: Announcement) -> Outcome:
        outcome = Outcome()
        for signature, number in told.submissions:
            entry = Entry(Key(signature.stem, number), dict.fromkeys(range(len(self._names)), signature))
            if signature.refusal:
                entry.failure = self._objection(entry)
            outcome.decided.append(entry)
        return outcome

    def missing(self, entry: Entry) -> list[int]:
        """Ranks that have neither submitted it nor joined."""
        present = {*entry.signatures, *self.joined}
        return [rank for rank in range(len(self._names)) if rank not in present]

    def _decide(self, key: Key, outcome: Outcome) -> None:
        entry = self.waiting[key]
        if len(entry.signatures) + len(self.joined) < len(self._names) or self.missing(entry):
            return
        del self.waiting[key]
        entry.failure = self._objection(entry)
        outcome.decided.append(entry)

    def _withdraw(self, announcements: Sequence[Announcement], outcome: Outcome) -> None:
        for told in announcements:
            for key, why in told.withdrawn:
                entry = self.waiting.pop(key, None)
                if entry is not None:
                    entry.failure, entry.wrong_arguments = why, False
                    outcome.decided.append(entry)

    def _objection(self, entry: Entry) -> str:
        """Why a complete entry cannot be carried out; empty if it can."""
        signature = entry.signature
        for rank, other in entry.signatures.items():
            if other.refusal:
                return f"rank {self._names[rank]} cannot do it: {other.refusal}"
        if any(other is not signature and other != signature for other in entry.signatures.values()):
            told = "; ".join(
                f"rank {self._names[rank]} submitted {entry.signatures[rank].words()}"
                for rank in sorted(entry.signatures)
            )
            entry.disagrees = True
            return f"the ranks' requests do not fit together: {told}"
        if self.joined and not kind_of(signature.kind).serves_joined:
            absent = ", ".join(str(self._names[rank]) for rank in sorted(self.joined))
            entry.wrong_arguments = False
            return (
                f"rank {absent} has joined and takes part in {names_of('serves_joined', 's')} only: expected no "
                f"{signature.kind} until all ranks have joined"
            )
        return ""


# -- what travels in a round ------------------------------------------------------------------------------------------
def record_words(size: int) -> int:
    """The length of a record among ``size`` ranks: the whole round stays small."""
    return max(4, min(128, 1024 // size))


@final
class Exchange:
    """Rounds of one rank over a communicator that no one else uses meanwhile."""

    def __init__(self, communicator: Communicator, known: Known) -> None:
        self._communicator = communicator
        self._known = known
        self._own: Words = np.zeros((communicator.size, record_words(communicator.size)), np.int64)
        self._all: Words = np.zeros_like(self._own)

    def tell(
        self,
        submissions: Sequence[tuple[str, int]],
        withdrawn: Sequence[tuple[Key, str]] = (),
        *,
        joins: bool = False,
        leaves: bool = False,
    ) -> list[Announcement]:
        """Tell what this rank has (encoded signatures, numbers of names); give what all ranks have told."""
        words, text = self.encode(submissions, withdrawn, joins=joins, leaves=leaves)
        row = self._own[self._communicator.rank]
        row[: len(words)] = words
        self._communicator.allreduce(self._own, out=self._all)
        heads = self._all[:, 0].tolist()
        texts = [b""] * len(heads)
        if any(head >> 32 for head in heads):
            joined = self._communicator.allgather(np.frombuffer(text, np.uint8)).tobytes()
            ends = np.cumsum([head >> 32 for head in heads]).tolist()
            texts = [joined[end - (head >> 32) : end] for head, end in zip(heads, ends, strict=True)]
        return self.decode(self._all, texts)

    def encode(
        self, submissions: Sequence[tuple[str, int]], withdrawn: Sequence[tuple[Key, str]], *, joins: bool, leaves: bool
    ) -> tuple[list[int], bytes]:
        """The words of the record and the text after it."""
        words, new, room = [0], [], self._own.shape[1]
        crowded = []
        for signature, name in submissions:
            number = self._known.number(signature)
            if number is None:
                new.append([signature, name])
            elif len(words) < room:
                words.append(number << 32 | name)
            else:
                crowded.append([number, name])
        text = b""
        if new or crowded or withdrawn:
            lost = [[key.stem, key.number, why] for key, why in withdrawn]
            text = json.dumps([crowded, new, lost], separators=(",", ":")).encode()
        flags = (JOINS if joins else 0) | (LEAVES if leaves else 0)
        words[0] = flags | (len(words) - 1) << 8 | len(text) << 32
        return words, text

    def decode(self, records: Words, texts: Sequence[bytes]) -> list[Announcement]:
        """What the ranks told. Numbers are those of before this round; new signatures get theirs when all were read."""
        announcements = []
        for rank, (head, *words) in enumerate(records[:, :FEW].tolist()):
            told = Announcement(joins=bool(head & JOINS), leaves=bool(head & LEAVES))
            count = head >> 8 & 0xFFFFFF
            if count > len(words):
                words = records[rank, 1 : count + 1].tolist()
            told.submissions = [(self._known.use(word >> 32), word & 0xFFFFFFFF) for word in words[:count]]
            announcements.append(told)
        if not any(texts):
            return announcements
        documents = [json.loads(text) if text else [[], [], []] for text in texts]
        for told, (crowded, _, lost) in zip(announcements, documents, strict=True):
            told.submissions += [(self._known.use(number), name) for number, name in crowded]
            told.withdrawn = [(Key(stem, number), why) for stem, number, why in lost]
        for told, (_, new, _) in zip(announcements, documents, strict=True):
            told.submissions += [(self._known.learn(signature), name) for signature, name in new]
        return announcements

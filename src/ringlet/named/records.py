"""What travels in a round: a record of fixed size from every rank, and texts behind it if anybody has some.

Word 0 of a record holds flags (bits 0-7), the number of known requests (8-31) and the bytes of text (32-62). Each
further word is a known request: the number of its signature (upper 31 bits), the number of its name (lower 32 bits).
Texts are JSON: new signatures, known requests that found no room, withdrawn requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.named.signatures import Key
from ringlet.named.table import Announcement, Known

JOINS, LEAVES = 1, 2
FEW = 8
"""So many words of each record are looked at first."""
Words = NDArray[np.int64]


def record_words(size: int) -> int:
    """The length of a record among ``size`` ranks: the whole round stays small."""
    return max(4, min(128, 1024 // size))


class Exchange:
    """Rounds of one rank over a communicator that nobody else uses meanwhile."""

    def __init__(self, communicator: Communicator, known: Known) -> None:
        self._communicator = communicator
        self._known = known
        self._own: Words = np.zeros((communicator.size, record_words(communicator.size)), np.int64)
        self._all: Words = np.zeros_like(self._own)

    def tell(
        self,
        requests: Sequence[tuple[str, int]],
        withdrawn: Sequence[tuple[Key, str]] = (),
        *,
        joins: bool = False,
        leaves: bool = False,
    ) -> list[Announcement]:
        """Tell what this rank has (encoded signatures, numbers of names); give what all ranks have told."""
        words, text = self.encode(requests, withdrawn, joins=joins, leaves=leaves)
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
        self, requests: Sequence[tuple[str, int]], withdrawn: Sequence[tuple[Key, str]], *, joins: bool, leaves: bool
    ) -> tuple[list[int], bytes]:
        """The words of the record and the text behind it."""
        words, new, room = [0], [], self._own.shape[1]
        crowded = []
        for signature, name in requests:
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
            told.requests = [(self._known.use(word >> 32), word & 0xFFFFFFFF) for word in words[:count]]
            announcements.append(told)
        if not any(texts):
            return announcements
        documents = [json.loads(text) if text else [[], [], []] for text in texts]
        for told, (crowded, _, lost) in zip(announcements, documents, strict=True):
            told.requests += [(self._known.use(number), name) for number, name in crowded]
            told.withdrawn = [(Key(stem, number), why) for stem, number, why in lost]
        for told, (_, new, _) in zip(announcements, documents, strict=True):
            told.requests += [(self._known.learn(signature), name) for signature, name in new]
        return announcements

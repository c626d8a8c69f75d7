"""Do the ranks agree: before the first step on what they run, and every so many steps on what they hold?

A cluster where one machine has an older version, another configuration file or half of the data would train something,
and no one would see that it is wrong. So every rank says what it has, and a difference ends all of them
(:func:`check_same`). Replicas that should be equal are compared by digests while they train (:class:`ReplicaGuard`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import ringlet
from ringlet.comm.contract import Communicator
from ringlet.data.partition import bounds
from ringlet.data.source import Source, is_random
from ringlet.errors import EXIT_USAGE, CommunicationError, ConfigError
from ringlet.kernels.contract import Kernels

MAX_SHOWN = 5
"""How many differences a message lists."""
MAX_VALUE = 160
"""Characters of a value in a message."""
FINGERPRINT_SAMPLES = 16
_MISSING = "nothing"
DEFAULT_EVERY = 100
BLOCK_BYTES = 1 << 18
"""A block is read from memory once and summed up in cache; and it is what a message can tell apart."""
MAX_NAMES = 4
_WORDS = 2
"""Of a block's digest."""

Digests = NDArray[np.uint64]
_ADVICE = (
    "Memory or a transfer has failed, or the ranks run different code: go on from an older checkpoint, and if it "
    "happens again, leave that machine out"
)


class HandshakeError(CommunicationError):
    """Ranks that do not mean the same run. Starting them again does not help, so supervisors do not try."""

    exit_code = EXIT_USAGE


def check_same(comm: Communicator, facts: Mapping[str, str]) -> None:
    """Raise the same :class:`HandshakeError` on all ranks if the facts of any differ from rank 0's; all must call."""
    about = json.dumps([os.uname().nodename, dict(facts)]).encode()
    said = [json.loads(data) for data in comm.allgather_bytes(about)]
    host, expected = said[0]
    differences = [
        f"rank {rank} on {place} has {name} {_shown(own)}, rank 0 on {host} has {_shown(first)}"
        for rank, (place, given) in enumerate(said)
        for name, own, first in _unequal(given, expected)
    ]
    if differences:
        more = len(differences) - MAX_SHOWN
        listed = "; ".join(differences[:MAX_SHOWN]) + (f"; and {more} more differences" if more > 0 else "")
        raise HandshakeError(
            f"the ranks do not mean the same run: {listed}. Give every rank the same version of Ringlet, the same "
            "configuration and the same data"
        )


def _unequal(given: Mapping[str, str], expected: Mapping[str, str]) -> Iterator[tuple[str, str | None, str | None]]:
    """Name and both values of every difference; None for what a side does not have."""
    for name in dict.fromkeys((*expected, *given)):
        if given.get(name) != expected.get(name):
            yield name, given.get(name), expected.get(name)


def _shown(value: str | None) -> str:
    if value is None:
        return _MISSING
    return f"'{value}'" if len(value) <= MAX_VALUE else f"'{value[:MAX_VALUE]}…'"


def software_facts(kernels: Kernels) -> dict[str, str]:
    """What the results of a rank depend on beside its configuration and data."""
    instruction_set = getattr(kernels, "instruction_set", None)
    facts = {
        "version": ringlet.__version__,
        "byte order": sys.byteorder,
        "kernels": kernels.name,
    }
    if instruction_set is not None:
        facts["instruction set"] = str(instruction_set())
    else:
        facts["NumPy"] = np.__version__  # its arithmetic is the kernels'
    return facts


def dataset_fingerprint(source: Source) -> str:
    """A digest of size, shape, task and a few evenly spread samples: cheap, against confusion, not against attackers.

    For all parts of a data set there is :meth:`ringlet.data.Dataset.fingerprint`.
    """
    about = [len(source), list(source.input_shape), source.task, source.num_classes]
    digest = hashlib.sha256(json.dumps(about).encode())
    if len(source) and not is_random(source):
        picks = np.unique(np.linspace(0, len(source) - 1, FINGERPRINT_SAMPLES).astype(np.int64))
        for values in source.read(picks):
            digest.update(str(values.dtype).encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:32]


class ReplicaError(CommunicationError):
    """Replicas that should be equal differ. What was saved before may still be good: going on from there may help."""


@final
class ReplicaGuard:
    """Do all replicas still hold the same bits? Compares every ``every`` steps (0: never).

    Where a machine keeps one copy of the parameters, replicas are machines: the ranks of each digest a part of its
    copy, and machines compare. Running statistics exist once per rank, and ranks compare. A difference means that
    memory or an exchange has failed, or that ranks run different code: training on would mix two networks into neither.
    ``sizes`` are numbers of elements by parameter, for messages.

    With ``own_parameters`` every rank has a copy of the parameters, as if it were a machine. Comparisons fall due at
    every multiple of ``every``; a rank that cannot be asked just then is asked at the next chance. Every rank must make
    one with the same arguments and call the same methods.
    """

    def __init__(
        self,
        comm: Communicator,
        every: int = DEFAULT_EVERY,
        *,
        sizes: Mapping[str, int] | None = None,
        own_parameters: bool = False,
    ) -> None:
        if every < 0:
            raise ConfigError(f"replicas are to be compared every {every} steps: expected 0 (never) or more")
        self._comm = comm
        self._every = every
        self._names = list(sizes or {})
        self._ends = np.cumsum([0, *(sizes or {}).values()])[1:]
        self._machines = list(range(comm.size)) if own_parameters else _machines_of_ranks(comm)
        self._num_machines = len(set(self._machines))
        self._last_step = 0

    def after_update(self, step: int, parameters: NDArray[Any], statistics: NDArray[Any]) -> None:
        """Compare if it is time to; ``step`` counts from 1. To be called when all ranks have done their update."""
        if self._every and step // self._every > self._last_step // self._every:
            self._last_step = step
            self.compare(step, parameters, statistics)

    def compare(self, step: int, parameters: NDArray[Any], statistics: NDArray[Any]) -> None:
        """Raise the same :class:`ReplicaError` on all ranks if parameters of machines or statistics of ranks differ.

        ``parameters`` is the machine's shared array, or this rank's; ``statistics`` are this rank's; both flat.
        """
        comm = self._comm
        if comm.size == 1:
            return
        blocks = self._own_blocks(parameters.nbytes)
        digests = np.concatenate([block_digests(statistics, range(1)), block_digests(parameters, blocks, BLOCK_BYTES)])
        all_digests = comm.allgather(digests)
        counts = [len(self._blocks_of(rank, parameters.nbytes)) for rank in range(comm.size)]
        self._check_statistics(step, all_digests, counts)
        self._check_parameters(step, all_digests, counts, parameters)

    def _own_blocks(self, num_bytes: int) -> range:
        return self._blocks_of(self._comm.rank, num_bytes)

    def _blocks_of(self, rank: int, num_bytes: int) -> range:
        """The blocks that a rank digests: its share of its machine's; none where there is only one machine."""
        ranks = self._ranks_of(self._machines[rank])
        if self._num_machines == 1:
            return range(0)
        return range(*bounds(-(-num_bytes // BLOCK_BYTES), ranks.index(rank), len(ranks)))

    def _ranks_of(self, machine: int) -> list[int]:
        return [rank for rank, number in enumerate(self._machines) if number == machine]

    def _check_statistics(self, step: int, digests: Digests, counts: Sequence[int]) -> None:
        starts = np.cumsum([0, *(1 + count for count in counts)])[:-1]
        strangers = _strangers(digests[starts])
        if strangers:
            raise ReplicaError(
                f"replicas differ after step {step}: the running statistics of rank {_listed(strangers)} are not those "
                f"of rank {_first_other(strangers)}. {_ADVICE}"
            )

    def _check_parameters(self, step: int, digests: Digests, counts: Sequence[int], parameters: NDArray[Any]) -> None:
        """Blocks of each machine, put together from its ranks, beside those of the others."""
        per_rank = np.split(digests, np.cumsum([1 + count for count in counts])[:-1])
        machines = [
            np.concatenate([per_rank[rank][1:] for rank in self._ranks_of(machine)])
            for machine in range(self._num_machines)
        ]
        table = np.stack(machines)
        different = (table != table[0]).any(axis=(0, 2))
        if different.any():
            block = int(different.argmax())
            self._raise_block(step, block, _strangers(table[:, block]), parameters)

    def _raise_block(self, step: int, block: int, strangers: Sequence[int], parameters: NDArray[Any]) -> None:
        width = BLOCK_BYTES // parameters.itemsize
        start, stop = block * width, min((block + 1) * width, parameters.size)
        first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
        names = [f"'{name}'" for name in self._names[first : last + 1]]
        named = f" ({', '.join(names[:MAX_NAMES])}{' …' if len(names) > MAX_NAMES else ''})" if names else ""
        ranks = [rank for machine in strangers for rank in self._ranks_of(machine)]
        raise ReplicaError(
            f"replicas differ after step {step}: parameters {start:,} to {stop - 1:,}{named} of machine "
            f"{_listed(strangers)} (rank {_listed(ranks)}) are not those of machine {_first_other(strangers)}. "
            f"{_ADVICE}"
        )


def block_digests(array: NDArray[Any], blocks: range, block_bytes: int | None = None) -> Digests:
    """A row of two words for each of ``blocks``; without ``block_bytes`` the whole array is one block.

    The words are the exclusive or and the sum (modulo 2⁶⁴) of the block's 64-bit words. Every flipped bit changes both;
    it takes about half the time of a cyclic redundancy check, because it need not protect against intentions.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    width = data.size if block_bytes is None else block_bytes
    digests = np.zeros((len(blocks), _WORDS), np.uint64)
    for row, block in zip(digests, blocks, strict=True):
        part = data[block * width : (block + 1) * width]
        whole = part.size // 8 * 8
        words, rest = part[:whole].view(np.uint64), part[whole:].tobytes()
        row[0] = np.bitwise_xor.reduce(words) ^ np.uint64(int.from_bytes(rest, "little"))
        row[1] = np.add.reduce(words) + np.uint64(int.from_bytes(rest, "little"))
    return digests


def _strangers(digests: Digests) -> list[int]:
    """Rows that differ from what most have; if no majority has it, from what the first has."""
    rows = [row.tobytes() for row in digests]
    if all(row == rows[0] for row in rows):
        return []
    (common, count), *_ = Counter(rows).most_common(1)
    usual = common if 2 * count > len(rows) else rows[0]
    return [number for number, row in enumerate(rows) if row != usual]


def _first_other(strangers: Sequence[int]) -> int:
    return next(number for number in range(len(strangers) + 1) if number not in strangers)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _machines_of_ranks(comm: Communicator) -> list[int]:
    """The number of every rank's machine; every rank must call."""
    return [int(number) for number in comm.allgather(np.array([comm.node], np.int64))]

"""Before the first step: do all ranks mean the same run?

A cluster where one machine has an older version, another configuration file or half of the data would train something,
and nobody would see that it is wrong. So every rank says what it has, and a difference ends all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping

import numpy as np

import ringlet
from ringlet.comm.contract import Communicator
from ringlet.data.source import Source
from ringlet.errors import EXIT_USAGE, CommunicationError
from ringlet.kernels.contract import Kernels

MAX_SHOWN = 5
"""How many differences a message lists."""
MAX_VALUE = 160
"""Characters of a value in a message."""
FINGERPRINT_SAMPLES = 16
_MISSING = "nothing"


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
        "kernels": kernels.__name__.rpartition(".")[2] if hasattr(kernels, "__name__") else type(kernels).__name__,
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
    if len(source):
        picks = np.unique(np.linspace(0, len(source) - 1, FINGERPRINT_SAMPLES).astype(np.int64))
        for values in source.read(picks):
            digest.update(str(values.dtype).encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()[:32]

"""What a rank does every now and then while it waits for another: see whether that one can still come."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.channel import layout
from ringlet.errors import CommunicationError, RankFailedError


@final
class Watch:
    """Called with the rank that is waited for and the rank that ended everything (or -1); raises if waiting is vain."""

    def __init__(self, memory: NDArray[np.uint8], rank: int, size: int) -> None:
        self._blocks = layout.control_blocks(memory, size)
        self._failure = layout.failure_word(memory)
        self._rank = rank
        self._size = size

    def __call__(self, peer: int, failed: int) -> None:
        """Raise ``RankFailedError`` if a rank is gone, ``CommunicationError`` if the peer has closed its end."""
        if failed >= 0:
            raise RankFailedError(
                f"rank {failed} of {self._size} on this machine has failed or was interrupted; rank {self._rank} "
                "cannot go on without it. The first report of a failed rank tells why"
            )
        block = self._blocks[peer]
        if block["closed"]:
            raise CommunicationError(
                f"rank {self._rank} waits in a collective for rank {peer} of {self._size} on this machine, which has "
                "closed its communicator: every rank must call the same collectives before any rank closes"
            )
        process = int(block["process"])
        if process and block["namespace"] == self._blocks[self._rank]["namespace"] and not is_running(process):
            if not self._failure[0]:
                self._failure[0] = peer + 1
            raise RankFailedError(
                f"rank {peer} of {self._size} on this machine (process {process}) has ended while rank {self._rank} "
                "waited for it in a collective: every rank must call the same collectives until the end"
            )


def is_running(process: int) -> bool:
    """Whether a process of this machine exists and is more than an exit code that waits to be read."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return not state or state[0] not in "ZX"
    return True

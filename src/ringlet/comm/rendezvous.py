"""How the ranks of a local job find each other: through a directory of their own that the launcher has made."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from ringlet.comm.channel.watch import is_running
from ringlet.comm.memory import Segment, attach_segment, create_segment
from ringlet.errors import CommunicationError, RankFailedError
from ringlet.io.disk import free_bytes, replacing

TOKEN_FILE = "segment"  # noqa: S105 (a file's name)
SECONDS_TO_MEET = 60.0
LAUNCHER = "RINGLET_LAUNCHER_PID"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


def meet_in_directory(job: str, rank: int, num_bytes: int) -> Segment:
    """The first segment of a job: rank 0 makes it and leaves its token in the directory, the others wait for that."""
    directory = Path(job)
    if not directory.is_dir():
        raise CommunicationError(
            f"RINGLET_JOB names '{job}', which is no directory: the launcher makes it. Start ranks with: ringlet run"
        )
    if rank != 0:
        return attach_segment(_wait_for_token(directory, rank))
    segment = create_segment(num_bytes)
    try:
        with replacing(directory / TOKEN_FILE, durable=False) as draft, open(draft, "xb", opener=_private) as file:
            file.write(segment.token)
    except OSError as error:
        raise CommunicationError(
            f"the ranks cannot meet in {directory}: {error.strerror}; {len(segment.token)} bytes are needed, "
            f"{free_bytes(directory)}. Make room there, or set TMPDIR to a directory that has it"
        ) from error
    return segment


def _wait_for_token(directory: Path, rank: int) -> bytes:
    path, pause = directory / TOKEN_FILE, _FIRST_PAUSE
    deadline = time.monotonic() + SECONDS_TO_MEET
    while True:
        with suppress(FileNotFoundError):
            return path.read_bytes()
        if not _launcher_is_there():
            raise RankFailedError(f"rank {rank} waited for rank 0, but the launcher has ended: start the job again")
        if time.monotonic() > deadline:
            raise RankFailedError(
                f"rank {rank} has waited {SECONDS_TO_MEET:.0f} s for rank 0, which never came. "
                "Every rank must run ringlet.init() (or the same command) at about the same time"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _launcher_is_there() -> bool:
    """Also true if nobody said who it is."""
    text = os.environ.get(LAUNCHER, "")
    return not (text.isascii() and text.isdecimal()) or is_running(int(text))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)

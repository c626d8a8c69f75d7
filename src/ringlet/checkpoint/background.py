"""Writing while training continues: one thread per write, one write at a time."""

from __future__ import annotations

import threading
from time import thread_time
from types import TracebackType
from typing import Self, final

from ringlet.checkpoint.contents import Checkpoint
from ringlet.checkpoint.store import CheckpointStore
from ringlet.io.storage import Place


@final
class BackgroundWriter:
    """Hands checkpoints to a thread. Hashing and writing release the interpreter's lock.

    A process that ends while a write is going on finishes it first, unless it is killed.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store
        self._thread: threading.Thread | None = None
        self._outcome: Place | BaseException | None = None
        self.processor_seconds = 0.0
        """What the last write that has ended took of a core, which training may have missed."""

    @property
    def busy(self) -> bool:
        """Whether a write is going on."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, checkpoint: Checkpoint) -> None:
        """Begin to write and return at once; its arrays must stay as they are until :meth:`wait` returns.

        The outcome of the write before must have been asked for: otherwise this is :meth:`wait` first.
        """
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(checkpoint,), name="checkpoint writer")
        self._thread.start()

    def wait(self) -> Place | None:
        """The directory of the last write, when it is on disk; None if there was none. Raises what went wrong with it.

        An outcome is given once.
        """
        if self._thread is None:
            return None
        self._thread.join()
        outcome, self._outcome, self._thread = self._outcome, None, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def finish_within(self, seconds: float) -> None:
        """Give a write that is going on so long; its outcome can still be asked for."""
        if self._thread is not None:
            self._thread.join(seconds)

    def close(self) -> Place | None:
        """Wait for the last write; the writer may be used again."""
        return self.wait()

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            self._outcome = self.store.write(checkpoint)
        except BaseException as error:
            self._outcome = error
        self.processor_seconds = thread_time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait; an error of the write does not hide one of the block."""
        if error is None:
            self.close()
        elif self._thread is not None:
            self._thread.join()
            self._thread = None

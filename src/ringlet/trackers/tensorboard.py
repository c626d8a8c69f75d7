"""TensorBoard: an event file of scalars, written with TensorBoard's own record writer. TensorFlow is not needed."""

from __future__ import annotations

import os
import socket
import time
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, final

from ringlet.component import option
from ringlet.errors import UsageError
from ringlet.io.disk import Appender
from ringlet.libraries import require
from ringlet.trackers.base import Tracker, Values
from ringlet.trackers.registry import TrackerConfig
from ringlet.training.events import RunStarted

FOLDER = "tensorboard"
_FLUSH_SECONDS = 2.0
_MAX_WAITING_BYTES = 1 << 22
"""What may wait for a disk to have room again."""


@final
class TensorBoard(Tracker):
    """Writes into ``path``; show it with ``tensorboard --logdir PATH``.

    A resumed run writes a further file, which begins with a session mark at the next step: TensorBoard drops what
    older files have from there on.
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self._path = Path(path)
        self._file: Appender | None = None
        self._flushed = 0.0

    def open(self) -> None:
        """A new file; its name tells time, machine and process, as TensorBoard expects."""
        self._proto = require("tensorboard.compat.proto.event_pb2")
        self._summary = require("tensorboard.compat.proto.summary_pb2")
        name = f"events.out.tfevents.{time.time_ns() / 1e9:017.6f}.{socket.gethostname()}.{os.getpid()}"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._file = Appender(self._path / name, afresh=True)
        except OSError as error:
            raise UsageError(f"tensorboard cannot write to '{self._path}': {error.strerror}") from None
        self._waiting = BytesIO()
        self._records = require("tensorboard.summary.writer.record_writer").RecordWriter(self._waiting)
        self._add(file_version="brain.Event:2")

    def describe(self, event: RunStarted) -> None:
        """The options of the run, as a text; what an attempt without a checkpoint has left does not count."""
        self.resume(-1)
        rows = "\n".join(f"| {name} | {value} |" for name, value in event.config.items())
        self._add_text("configuration", f"| option | value |\n| --- | --- |\n{rows}")
        self._flush()

    def _add_text(self, tag: str, text: str) -> None:
        tensors = require("tensorboard.compat.proto.tensor_pb2")
        types = require("tensorboard.compat.proto.types_pb2")
        metadata = self._summary.SummaryMetadata(
            plugin_data=self._summary.SummaryMetadata.PluginData(plugin_name="text")
        )
        tensor = tensors.TensorProto(dtype=types.DT_STRING, string_val=[text.encode()])
        value = self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
        self._add(summary=self._summary.Summary(value=[value]))

    def resume(self, step: int) -> None:
        """Mark where the run resumes."""
        self._add(step=step + 1, session_log=self._proto.SessionLog(status=self._proto.SessionLog.START))
        self._flush()

    def write(self, step: int, values: Values) -> None:
        """Scalars; NaN is shown as such."""
        scalars = [self._summary.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step=step, summary=self._summary.Summary(value=scalars))
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self._flush()

    def end(self, outcome: str) -> None:  # noqa: ARG002
        """Write what waits and close the file."""
        if self._file is not None:
            self._flush()
            self._file.close()

    def _add(self, **content: Any) -> None:
        event = self._proto.Event(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())

    def _flush(self) -> None:
        """Append whole records; those that the disk does not take wait, if they are not too many."""
        file, records = self._file, self._waiting.getvalue()
        assert file is not None
        if self.save(lambda: file.append(records)) or len(records) > _MAX_WAITING_BYTES:
            self._waiting.seek(0)
            self._waiting.truncate()
        self._flushed = time.monotonic()


@final
class TensorBoardConfig(TrackerConfig):
    """TensorBoard: an event file of scalars."""

    name: ClassVar[str] = "tensorboard"
    argument: ClassVar[str] = "folder"
    library: ClassVar[str | None] = "tensorboard"
    folder: str | None = option(None, "folder of the event files; default: tensorboard in the run directory")

    def build(self, run_directory: Path) -> TensorBoard:
        """The tracker of a run."""
        return TensorBoard(self.folder or run_directory / FOLDER)

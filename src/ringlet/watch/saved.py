"""The page as one file: nothing is fetched, so that it can be sent to a colleague or kept beside the run."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ringlet.errors import FileWriteError, UsageError
from ringlet.io.disk import write_whole
from ringlet.watch.assets import whole_page
from ringlet.watch.document import Cursor
from ringlet.watch.folder import read_picture
from ringlet.watch.run_view import RunView

MAX_PICTURES = 12
"""Pictures of so many epochs go into a file, evenly spaced, the first and the last among them."""


def save_page(runs: Sequence[RunView], path: Path, clock: Callable[[], float] = time.time) -> None:
    """Read all of the logs and write the page; it appears completely or not at all."""
    for run in runs:
        while run.look():
            pass
    document = Cursor().take(runs)
    for part in document["runs"]:
        part["images"] = _images(runs[part["index"]])
    stamp = time.strftime("%Y-%m-%d %H:%M", time.localtime(clock()))
    element = f'<script type="application/json" id="saved" data-time="{stamp}">{_as_text(document)}</script>'
    try:
        write_whole(path, whole_page(element).encode())
    except FileWriteError as error:
        raise UsageError(f"{error}. Choose another file") from None


def _as_text(document: Any) -> str:
    """JSON that cannot end the element it stands in, whatever names and messages hold."""
    plain = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _images(run: RunView) -> dict[int, str]:
    epochs = run.pictures()
    if len(epochs) > MAX_PICTURES:
        last = len(epochs) - 1
        epochs = [epochs[round(place * last / (MAX_PICTURES - 1))] for place in range(MAX_PICTURES)]
    read = {epoch: read_picture(run.path, epoch) for epoch in epochs}
    return {epoch: base64.b64encode(data).decode() for epoch, data in read.items() if data is not None}

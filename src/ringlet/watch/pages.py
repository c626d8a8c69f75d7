"""The page: its files, what it lacks of the runs it shows, and the page as one file.

Served, the page fetches its files from the server. As one file it fetches nothing, so that it can be sent to a
colleague or kept beside the run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, final

from ringlet.errors import FileWriteError, UsageError
from ringlet.io.disk import write_whole
from ringlet.watch.run_files import read_picture
from ringlet.watch.run_view import RunView, Series

STYLES = ("uplot/uPlot.min.css", "style.css")
SCRIPTS = ("uplot/uPlot.iife.min.js", "format.js", "runs.js", "charts.js", "evaluation.js", "details.js", "page.js")
TYPES = {"css": "text/css", "js": "text/javascript"}
_CLOSED = "default-src 'none'; base-uri 'none'; form-action 'none'"
SERVED_POLICY = (
    f"{_CLOSED}; frame-ancestors 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"
)
"""Content-Security-Policy of the served page: nothing but this server's own files."""
MAX_PICTURES = 12
"""Pictures of so many epochs go into a file, evenly spaced, the first and the last among them."""


@cache
def read(name: str) -> str:
    """A file of the page."""
    return resources.files("ringlet.watch").joinpath(f"page/{name}").read_text(encoding="utf-8")


def served_page() -> str:
    """The page that fetches its files from the server."""
    styles = "\n".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
    scripts = "\n".join(f'<script src="static/{name}"></script>' for name in SCRIPTS)
    return read("index.html").replace("<!-- styles -->", styles).replace("<!-- scripts -->", scripts)


def whole_page(data_element: str) -> str:
    """The page with everything inside; its policy allows these very scripts and styles and nothing else."""
    style, script = "\n".join(map(read, STYLES)), "\n".join(map(read, SCRIPTS))
    policy = f"{_CLOSED}; script-src {_source_hash(script)}; style-src {_source_hash(style)}; img-src data:"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    body = f"{data_element}\n<script>{script}</script>"
    return read("index.html").replace("<!-- styles -->", head).replace("<!-- scripts -->", body)


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@final
class Cursor:
    """What one page has been sent. A fresh one has nothing, so that the first document is complete."""

    def __init__(self) -> None:
        self._runs: dict[int, _RunCursor] = {}

    def take(self, runs: Sequence[RunView]) -> dict[str, Any]:
        """All that is new since the last call, as plain values; runs without news have no entry."""
        found = []
        for index, run in enumerate(runs):
            known = self._runs.get(index)
            is_new = known is None or known.generation != run.generation
            if known is None or is_new:
                known = self._runs[index] = _RunCursor(run.generation)
            news = known.take(run)
            if news or is_new:
                found.append({"index": index, "name": run.name, "path": str(run.path), "is_new": is_new, **news})
        return {"runs": found} if found else {}


class _RunCursor:
    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._lengths: dict[str, tuple[int, int]] = {}
        self._num_notes = 0
        self._sent: dict[str, str] = {}

    def take(self, run: RunView) -> dict[str, Any]:
        news: dict[str, Any] = {}
        series = {name: self._points(name, one) for name, one in run.series.items()}
        series = {name: points for name, points in series.items() if points}
        if series:
            news["series"] = series
        total = run.notes.num_dropped + len(run.notes.items)
        if total > self._num_notes:
            news["notes"] = run.notes.items[-(total - self._num_notes) :]
            self._num_notes = total
        for name, value in {
            "about": run.about,
            "status": run.status,
            "tests": run.tests,
            "ranks": run.ranks.document,
            "staleness": run.staleness.document,
            "checkpoints": run.checkpoints(),
            "pictures": run.pictures(),
            "evaluation": run.evaluation.document(),
        }.items():
            self._add_changed(news, name, value)
        return news

    def _points(self, name: str, series: Series) -> dict[str, Any]:
        """The points of a curve that are new, or all of them if it was thinned."""
        generation, length = self._lengths.get(name, (series.generation, 0))
        start = length if generation == series.generation else 0
        self._lengths[name] = series.generation, len(series.x)
        if start == len(series.x):
            return {}
        return {"start": start, "x": series.x[start:], "y": series.y[start:]}

    def _add_changed(self, news: dict[str, Any], name: str, value: Any) -> None:
        written = json.dumps(value)
        if self._sent.get(name) != written:
            self._sent[name] = written
            news[name] = value


def save_page(runs: Sequence[RunView], path: Path, clock: Callable[[], float] = time.time) -> None:
    """Read all of the logs and write the page; it appears completely or not at all."""
    for run in runs:
        while run.look():
            pass
    document = Cursor().take(runs)
    for part in document["runs"]:
        run = runs[part["index"]]
        part["images"], part["sheets"] = _images(run), _sheets(run)
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


def _sheets(run: RunView) -> dict[str, str]:
    """The pictures of the last evaluation."""
    read = {name: run.evaluation.sheet(name) for name in (run.evaluation.document() or {}).get("sheets", ())}
    return {name: base64.b64encode(data).decode() for name, data in read.items() if data is not None}


def _images(run: RunView) -> dict[int, str]:
    epochs = run.pictures()
    if len(epochs) > MAX_PICTURES:
        last = len(epochs) - 1
        epochs = [epochs[round(place * last / (MAX_PICTURES - 1))] for place in range(MAX_PICTURES)]
    read = {epoch: read_picture(run.path, epoch) for epoch in epochs}
    return {epoch: base64.b64encode(data).decode() for epoch, data in read.items() if data is not None}

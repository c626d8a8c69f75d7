"""What runs in a server's own process: the functions in SQL are a few lines that call these.

A process loads a model once, when its first row comes, and keeps it. Nothing here talks to the database. Where a
function may run in parallel workers, PostgreSQL before 17 forbids Python to do so; and bytes that are handed to a
Python function are copied for every row (124 ms a row for a model of 50 MB). So SQL asks :func:`is_open` first, and
hands over the bytes only to :func:`open_model`.

Importing this module loads nothing. NumPy, OpenVINO and their threads start in :func:`_starting`: with signals blocked,
because threads inherit the mask and the server's signals must reach the server's own thread; and with one thread each,
because parallel workers are processes here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ringlet.errors import UsageError

if TYPE_CHECKING:
    from ringlet.database.models import PredictorCache
    from ringlet.database.rows import Row
    from ringlet.inference.predictor import Named

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_LIBRARIES = {"openvino": "openvino", "onnx": "onnxruntime", "ringlet": "numpy"}
_BATCH_SIZE = 32


class _Process:
    """What this process caches."""

    cache: PredictorCache | None = None
    last: tuple[str, Named | None, Row | None] | None = None
    """The last call: ``(ringlet_predict(…)).*`` makes one call for every column, all with the same picture."""


def is_open(sha256: str) -> bool:
    """Whether this process has the model."""
    return _Process.cache is not None and sha256 in _Process.cache


def open_model(sha256: str, kind: str, network: bytes, weights: bytes | None) -> str:
    """Verify and load a model; gives its SHA-256."""
    with _starting():
        from ringlet.database.models import stored_artifact

        cache = _cache()
        cache.get(sha256, lambda: stored_artifact("the stored model", sha256, kind, network, weights))
    return sha256


def predict(sha256: str, image: bytes) -> Row | None:
    """The result for the content of an image file."""
    from ringlet.database.rows import bytes_item

    return _one(sha256, bytes_item(image))


def predict_file(sha256: str, path: str, directory: str | None) -> Row | None:
    """The result for an image file below ``directory``."""
    if directory is None:
        raise UsageError(
            "no directory is allowed: install the functions with `ringlet sql install … --allow-directory`"
        )
    from ringlet.database.rows import AllowedDirectory, file_item, read_item

    return _one(sha256, read_item(file_item(path, AllowedDirectory(directory))))


def predict_batch(sha256: str, ids: Sequence[int | None], images: Sequence[bytes | None]) -> list[Row]:
    """The results for many pictures, each with its id."""
    from ringlet.database.rows import COLUMNS, bytes_item

    if len(ids) != len(images):
        raise UsageError(f"{len(ids)} ids for {len(images)} images: expected one for each")
    empty = dict.fromkeys(COLUMNS)
    rows = _rows(sha256, [bytes_item(image) for image in images])
    return [{"id": key, **(row or empty)} for key, row in zip(ids, rows, strict=True)]


def unknown(model: str) -> str:
    """Refuse a model that is not there."""
    raise UsageError(f"no model '{model[:80]}' is installed: `ringlet sql list` shows those that are")


def about(kind: str | None = None) -> str:
    """What this process has, as JSON; with a kind of model, after seeing that it could be run here."""
    from ringlet import __version__

    if kind is not None:
        with _starting():
            from ringlet.libraries import require

            _cache()
            if kind != "ringlet":
                require(_LIBRARIES[kind])
    loads = _Process.cache.num_loads if _Process.cache is not None else 0
    version = ".".join(map(str, sys.version_info[:3]))
    return json.dumps({"ringlet": __version__, "python": version, "process": os.getpid(), "loads": loads})


def _one(sha256: str, item: Named | None) -> Row | None:
    if _Process.last is None or _Process.last[:2] != (sha256, item):
        _Process.last = sha256, item, _rows(sha256, [item])[0]
    return _Process.last[2]


def _rows(sha256: str, items: Sequence[Named | None]) -> list[Row | None]:
    from ringlet.database.rows import predict_rows

    return predict_rows(_cache().get(sha256, _not_open), items)


def _not_open() -> Any:
    raise UsageError("the model is not loaded: call ringlet_predict, which loads it")


def _cache() -> PredictorCache:
    if _Process.cache is None:
        from ringlet.database.models import PredictorCache

        _Process.cache = PredictorCache(threads=1, batch_size=_BATCH_SIZE)
    return _Process.cache


@contextmanager
def _starting() -> Iterator[None]:
    """Around everything that may start threads."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("RINGLET_TUNING", "off")  # no measuring, and no files, in a server
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

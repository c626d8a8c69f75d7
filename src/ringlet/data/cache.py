"""Where fetched data sets live: ``RINGLET_CACHE``, else ``XDG_CACHE_HOME/ringlet``, else ``~/.cache/ringlet``."""

from __future__ import annotations

import os
from pathlib import Path

from ringlet.errors import DataError


def cache_directory(override: Path | str | None = None) -> Path:
    """The cache directory; it need not exist yet."""
    if override is not None:
        return Path(override)
    if own := os.environ.get("RINGLET_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "ringlet"
    try:
        return Path.home() / ".cache" / "ringlet"
    except RuntimeError as error:
        raise DataError("no home directory for the data cache: set RINGLET_CACHE to a folder") from error


def dataset_directory(name: str, override: Path | str | None = None) -> Path:
    """Where the files of a fetched data set are."""
    return cache_directory(override) / "datasets" / name

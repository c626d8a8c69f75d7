"""The directory of a study: its design, one record per finished run, and the reports.

==================  ===============================================================================
``study.toml``      the options, for people; `ringlet study FILE` accepts it
``plan.json``       the design that follows from them
``cells/C/rN/``     the run directory of repeat N of cell C, ``rN.log`` what it printed
``cells/C/rN.json`` its record: there completely or not at all
``study.json``      all results; ``report.html`` and ``plots/`` for people
==================  ===============================================================================
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringlet.errors import DataError, RingletError, UsageError
from ringlet.io.disk import try_lock, write_whole
from ringlet.study.design import StudyDesign
from ringlet.study.grid import Place

STUDY, DESIGN, CELLS, RESULTS, REPORT, PLOTS = "study.toml", "plan.json", "cells", "study.json", "report.html", "plots"
FORMAT = 1
_MAX_RECORD_BYTES = 64 << 20


@dataclass(frozen=True)
class StudyDirectory:
    """An existing study."""

    path: Path
    design: StudyDesign

    def run_dir(self, place: Place) -> Path:
        """The run directory of a cell's repeat."""
        return self.path / CELLS / place.cell.name / f"r{place.repeat}"

    def log(self, place: Place) -> Path:
        """What the run printed."""
        return self.run_dir(place).with_suffix(".log")

    def config(self, place: Place) -> Path:
        """The options that the run is started with."""
        return self.run_dir(place).with_suffix(".toml")

    def record(self, place: Place) -> Path:
        """The record of a run that has ended by itself."""
        return self.run_dir(place).with_suffix(".json")

    def read_record(self, place: Place) -> dict[str, Any] | None:
        """What is known of a run; None if it has not been done, or its record is damaged."""
        try:
            record = read_json(self.record(place))
        except (OSError, DataError):
            return None
        return record if record.items() >= _about(place).items() else None

    def write_record(self, place: Place, content: Mapping[str, Any]) -> None:
        """Keep what is known of a run, durably."""
        record = json.dumps({**_about(place), **content}, indent=1, allow_nan=False)
        write_whole(self.record(place), f"{record}\n".encode())

    def clear(self, place: Place) -> None:
        """Remove what an unfinished run has left."""
        shutil.rmtree(self.run_dir(place), ignore_errors=True)
        self.record(place).unlink(missing_ok=True)
        self.run_dir(place).parent.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from running the same study meanwhile."""
        with (self.path / DESIGN).open("rb") as file:
            if try_lock(file.fileno()) is False:
                raise UsageError(f"study '{self.path}' is being run by another process: wait for it")
            yield


def create_study(path: Path, design: StudyDesign) -> StudyDirectory:
    """Make the directory of a new study; ``path`` must not exist or be empty."""
    import tomli_w

    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"study directory '{path}' exists and is not empty. Give another --study-dir, or delete it")
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / STUDY, tomli_w.dumps(design.options.to_dict()).encode())
        write_whole(path / DESIGN, (json.dumps({"format": FORMAT, **design.to_dict()}, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(f"study directory '{path}' cannot be made: {error.strerror}. Give another") from None
    return StudyDirectory(path, design)


def open_study(path: Path) -> StudyDirectory:
    """The study in ``path``."""
    try:
        stored = read_json(path / DESIGN)
        design = StudyDesign.from_dict(stored)
    except FileNotFoundError:
        raise UsageError(f"'{path}' holds no study: expected {DESIGN} in it") from None
    except OSError as error:
        raise DataError(f"'{path / DESIGN}' cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError, RingletError) as error:
        raise DataError(f"'{path / DESIGN}' is damaged ({error}): start a new study from '{path / STUDY}'") from None
    return StudyDirectory(path, design)


def is_study(path: Path) -> bool:
    """Whether there is a study in ``path``."""
    return (path / DESIGN).is_file()


def default_path(models: tuple[str, ...]) -> Path:
    """``studies/<networks>-<time>``, not taken yet."""
    words = "-".join(re.sub(r"[^A-Za-z0-9._]+", "_", model.partition("@")[0]).strip("._") for model in models)
    name = f"{words[:60] or 'study'}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path("studies") / (name if attempt == 1 else f"{name}-{attempt}") for attempt in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _about(place: Place) -> dict[str, Any]:
    """What every record of a run begins with."""
    return {"format": FORMAT, "cell": place.cell.to_dict(), "repeat": place.repeat}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of sensible size."""
    if path.stat().st_size > _MAX_RECORD_BYTES:
        raise DataError(f"'{path}' is larger than {_MAX_RECORD_BYTES} bytes; is it the right file?")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{path}' is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"'{path}': expected a JSON object")
    return content

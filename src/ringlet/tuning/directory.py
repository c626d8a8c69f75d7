"""The directory of a search: its design, one record per trial and stage, and the reports.

=======================  ==========================================================================
``tune.json``            the search: options, space, method
``trials/0007/``         the run directory of trial 7: `ringlet watch DIR/trials` shows all of them
``trials/0007-3.json``   what came of it after 3 epochs: there completely or not at all
``trials/0007-3.log``    what the run printed until then
``best.toml``            the best configuration, for `ringlet train`
``results.json``         all trials; ``report.html`` and ``plots/`` for people
=======================  ==========================================================================
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ringlet.errors import DataError, RingletError, UsageError
from ringlet.io.disk import try_lock, write_whole
from ringlet.study.directory import read_json
from ringlet.training.run_directory import BEST_MODEL, CHECKPOINTS, MODEL, SUPERSEDED
from ringlet.tuning.methods.base import Job, Merits
from ringlet.tuning.options import Search

DESIGN, TRIALS, BEST, RESULTS, REPORT, PLOTS = (
    "tune.json",
    "trials",
    "best.toml",
    "results.json",
    "report.html",
    "plots",
)
FORMAT = 1
Status = Literal["finished", "diverged", "failed"]


@dataclass(frozen=True)
class Record:
    """What came of a trial up to a stage."""

    trial: int
    epochs: int
    values: Mapping[str, Any]
    status: Status
    value: float | None
    """The metric after the last epoch; None unless finished."""
    curve: tuple[float | None, ...]
    """… after every epoch, from the first on."""
    seconds: float
    """Of training, from the first epoch on."""
    reason: str = ""
    """Why it is not finished."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Record:
        """What :meth:`to_dict` wrote."""
        values = {name: stored[name] for name in cls.__dataclass_fields__}
        return cls(**{**values, "curve": tuple(values["curve"])})


@dataclass(frozen=True)
class TuneDirectory:
    """An existing search."""

    path: Path
    search: Search

    def run_dir(self, trial: int) -> Path:
        """The run directory of a trial."""
        return self.path / TRIALS / f"{trial:04}"

    def file(self, job: Job, suffix: str) -> Path:
        """The record, the log or the options of a job."""
        return self.path / TRIALS / f"{job.trial:04}-{job.epochs}{suffix}"

    def records(self) -> dict[tuple[int, int], Record]:
        """All that is known, by trial and epochs; damaged records count as missing."""
        found: dict[tuple[int, int], Record] = {}
        for path in sorted((self.path / TRIALS).glob("*.json")):
            name = re.fullmatch(r"(\d{4,})-(\d+)", path.stem)
            record = None if name is None else _read_record(path)
            if (
                name is not None
                and record is not None
                and (record.trial, record.epochs) == (int(name[1]), int(name[2]))
            ):
                found[record.trial, record.epochs] = record
        return found

    def merits(self, records: Mapping[tuple[int, int], Record]) -> Merits:
        """What methods judge by."""
        return {key: self.search.merit(record.value) for key, record in records.items()}

    def write_record(self, job: Job, record: Record) -> None:
        """Keep what came of a job, durably."""
        text = json.dumps(record.to_dict(), indent=1, allow_nan=False)
        write_whole(self.file(job, ".json"), f"{text}\n".encode())

    def drop_network(self, trial: int) -> None:
        """Remove the models and checkpoints of a trial that is out: those of all would fill the disk."""
        folder = self.run_dir(trial)
        for name in (MODEL, BEST_MODEL):
            (folder / name).unlink(missing_ok=True)
        for name in (CHECKPOINTS, SUPERSEDED):
            shutil.rmtree(folder / name, ignore_errors=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from running the same search meanwhile."""
        with (self.path / DESIGN).open("rb") as file:
            if try_lock(file.fileno()) is False:
                raise UsageError(f"the search in '{self.path}' is being run by another process: wait for it")
            yield


def create_search(path: Path, search: Search) -> TuneDirectory:
    """Make the directory of a new search; one that holds the same search already is opened."""
    if is_search(path):
        opened = open_search(path)
        if opened.search.to_dict() != search.to_dict():
            raise UsageError(
                f"'{path}' holds another search: {', '.join(_differences(opened.search, search))} differ. "
                f"`ringlet tune resume {path}` continues it; give another --tune-dir to begin a new one"
            )
        return opened
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"tune directory '{path}' exists and is not empty. Give another --tune-dir, or delete it")
    try:
        (path / TRIALS).mkdir(parents=True, exist_ok=True)
        write_whole(path / DESIGN, (json.dumps({"format": FORMAT, **search.to_dict()}, indent=1) + "\n").encode())
    except OSError as error:
        raise UsageError(f"tune directory '{path}' cannot be made: {error.strerror}. Give another") from None
    return TuneDirectory(path, search)


def open_search(path: Path) -> TuneDirectory:
    """The search in ``path``."""
    try:
        return TuneDirectory(path, Search.from_dict(read_json(path / DESIGN)))
    except FileNotFoundError:
        raise UsageError(f"'{path}' holds no search: expected {DESIGN} in it") from None
    except OSError as error:
        raise DataError(f"'{path / DESIGN}' cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RingletError) as error:
        raise DataError(f"'{path / DESIGN}' is damaged ({error}): begin a new search") from None


def is_search(path: Path) -> bool:
    """Whether there is a search in ``path``."""
    return (path / DESIGN).is_file()


def default_path(kind: str, model: str) -> Path:
    """``tunings/<kind>-<network>-<time>``, not taken yet."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "_", model).strip("._")[:60]
    name = f"{kind}-{plain or 'network'}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path("tunings") / (name if attempt == 1 else f"{name}-{attempt}") for attempt in range(1, 1000))
    return next(path for path in candidates if not path.exists())


def _differences(one: Search, other: Search) -> list[str]:
    first, second = one.to_dict(), other.to_dict()
    return [name for name in first if first[name] != second[name]]


def _read_record(path: Path) -> Record | None:
    try:
        stored = read_json(path)
        return Record.from_dict(stored) if stored.get("format") == FORMAT else None
    except (OSError, DataError, KeyError, TypeError):
        return None

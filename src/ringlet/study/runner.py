"""Runs what is missing of a study: one ``ringlet train`` after the other, each in a session of its own.

A run that ends by itself leaves a record, good or bad; one that was interrupted leaves none and is repeated when the
study is resumed. However this process ends, the run it has started ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringlet.config.sources import is_option
from ringlet.errors import EXIT_OK, DataError
from ringlet.launch.job import caught_signals
from ringlet.launch.processes import python_environment, start_guarded
from ringlet.study.design import BACKEND_VARIABLE, engine_and_backend
from ringlet.study.directory import StudyDirectory
from ringlet.study.grid import Cell, Place, run_order
from ringlet.study.measurement import read_measurement
from ringlet.training.run_directory import BEST_MODEL, CHECKPOINTS, EVENTS, LAST_MODEL, MODEL

FINISHED, FAILED = "finished", "failed"
LEAVE_SECONDS = 60.0
"""How long an interrupted run may take to leave before it is ended."""
_POLL_SECONDS = 0.1
_MAX_REASON = 500
_HEADINGS = ("error: ", "interrupted: ")


@dataclass(frozen=True)
class RunProgress:
    """What the study has just done, for those who show it: ``number`` of ``total`` runs, and the record of this one."""

    number: int
    total: int
    place: Place
    record: Mapping[str, Any] | None = None
    """None: the run begins."""
    seconds_left: float | None = None


def missing_runs(study: StudyDirectory, *, retry_failed: bool = False) -> list[Place]:
    """What is still to be run, in order."""
    missing = []
    for place in run_order(study.design.cells, study.design.options.repeats):
        record = study.read_record(place)
        if record is None or (retry_failed and record["status"] == FAILED):
            missing.append(place)
    return missing


def run_study(study: StudyDirectory, tell: Callable[[RunProgress], None], *, retry_failed: bool = False) -> bool:
    """Run what is missing; False if a signal asked to stop before all was done."""
    total = len(study.design.cells) * study.design.options.repeats
    missing = missing_runs(study, retry_failed=retry_failed)
    spent: dict[Cell, float] = {}
    with study.locked(), caught_signals() as caught:
        for index, place in enumerate(missing):
            number = total - len(missing) + index + 1
            tell(RunProgress(number, total, place))
            record = _run(study, place, caught)
            if record is None:
                return False
            study.write_record(place, record)
            spent[place.cell] = record["seconds"]
            tell(RunProgress(number, total, place, record, seconds_left(missing[index + 1 :], spent)))
            if caught:
                return index == len(missing) - 1
    return True


def seconds_left(places: Sequence[Place], spent: Mapping[Cell, float]) -> float:
    """What runs will take: as long as another repeat of their cell did, else as long as others on average."""
    usual = sum(spent.values()) / len(spent)
    return sum(spent.get(place.cell, usual) for place in places)


def _run(study: StudyDirectory, place: Place, caught: list[int]) -> dict[str, Any] | None:
    """One run and its record; None if it was interrupted."""
    study.clear(place)
    run_dir = study.run_dir(place)
    config = study.design.run_config(place.cell, place.repeat, str(run_dir.resolve()))
    study.config(place).write_text(config.to_toml(), encoding="utf-8")
    started, start = time.strftime("%Y-%m-%dT%H:%M:%S%z"), time.monotonic()
    with study.log(place).open("wb") as log:
        command = train_command(study, place)
        process = start_guarded(command, run_environment(place.cell.engine, os.environ), log.fileno())
        code = _wait(process, caught)
    about = {"started": started, "seconds": round(time.monotonic() - start, 3), "exit_code": code}
    if caught and code != EXIT_OK:
        return None
    try:
        if code != EXIT_OK:
            return {**about, "status": FAILED, "reason": failure_reason(study.log(place), code)}
        measurement = read_measurement(run_dir / EVENTS)
    except DataError as error:
        return {**about, "status": FAILED, "reason": str(error)}
    if not study.design.options.keep_models:
        _remove_models(run_dir)
    return {**about, "status": FINISHED, "measurement": measurement.to_dict()}


def train_command(study: StudyDirectory, place: Place) -> list[str]:
    """The words that start a run through the launcher."""
    options = study.design.options
    words = [sys.executable, "-P", "-m", "ringlet", "train", "-n", str(place.cell.workers)]
    words += ["--config", str(study.config(place).resolve()), "--launcher", options.launcher]
    return [*words, *(["--hosts", options.hosts] if options.hosts else [])]


def run_environment(engine: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a run: options of runs do not leak in, the backend of Keras is the cell's."""
    kept = {name: value for name, value in environ.items() if not is_option(name)}
    backend = engine_and_backend(engine)[1]
    return python_environment(kept if backend is None else {**kept, BACKEND_VARIABLE: backend})


def failure_reason(log: Path, code: int) -> str:
    """Why a run failed, in its own words: the error message at the end of its log, else its last line."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line.rstrip() for line in lines if line.strip()]
    starts = [index for index, line in enumerate(lines) if line.startswith(_HEADINGS)]
    chosen = lines[starts[-1] :] if starts else lines[-1:]
    text = " ".join(line.strip().removeprefix("error: ") for line in chosen)
    text = "".join(character if character.isprintable() else " " for character in text)
    return f"exit code {code}: {text[:_MAX_REASON] or 'nothing was printed'}"


def _wait(process: subprocess.Popen[bytes], caught: list[int]) -> int:
    """The exit code of a run. The first signal is passed on, a second one or a long wait ends it at once."""
    deadline = None
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECONDS)
            if caught and deadline is None:
                deadline = time.monotonic() + LEAVE_SECONDS
                process.send_signal(signal.SIGTERM)
            elif deadline is not None and (len(caught) > 1 or time.monotonic() > deadline):
                process.kill()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _remove_models(run_dir: Path) -> None:
    """A study is about metrics: the networks of all its runs would fill the disk."""
    for name in (MODEL, BEST_MODEL, LAST_MODEL):
        (run_dir / name).unlink(missing_ok=True)
    shutil.rmtree(run_dir / CHECKPOINTS, ignore_errors=True)

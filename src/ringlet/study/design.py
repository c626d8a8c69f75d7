"""From options to a design: what follows from the networks, the data and this machine is fixed here, before any run.

The design is kept with the study, so that a study that is resumed later, or elsewhere, runs the same cells.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ringlet.config import RunConfig
from ringlet.config.run_config import DEFAULT_LOCAL_BATCH_SIZE, DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS
from ringlet.data import Dataset
from ringlet.engines.engine import ENGINES
from ringlet.engines.keras import BACKENDS
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.launch.resources import usable_cores
from ringlet.models.spec import ModelSpec
from ringlet.study.grid import Cell, build_cells, global_batch
from ringlet.study.options import (
    ALL,
    AUTO,
    MAX_RUNS,
    StudyOptions,
    find_metric,
    models_and_datasets,
    parse_target,
    read_options,
)
from ringlet.training.components import check_fit, make_dataset, make_metrics, make_spec

EPOCH_FLOPS = 4e11
"""Arithmetic of an epoch with ``steps = auto``: seconds on a core of today."""
MIN_STEPS, MAX_STEPS = 3, 100
DEFAULT_VALIDATION_SPLIT = 0.1
QUIET: Mapping[str, Any] = {"checkpoint_every": "never", "evaluate": False, "num_pictures": 0}
"""What runs of a study leave out unless it is asked for."""
BACKEND_VARIABLE = "KERAS_BACKEND"
_MADE_UP = ("synthetic", "shapes")
"""Data sets of any size."""


@dataclass(frozen=True)
class StudyDesign:
    """A study whose every run is fixed."""

    options: StudyOptions
    cells: tuple[Cell, ...]
    steps: Mapping[str, int]
    """Steps of an epoch by ``MODEL BATCH``; 0: all data."""
    num_samples: Mapping[str, int]
    """To how many samples the data are limited, by entry of ``model``."""
    threads: Mapping[str, int]
    """Threads of a worker by number of workers; empty: the launcher's choice."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "options": self.options.to_dict(),
            "cells": [cell.to_dict() for cell in self.cells],
            "steps": dict(self.steps),
            "num_samples": dict(self.num_samples),
            "threads": dict(self.threads),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StudyDesign:
        """What :meth:`to_dict` wrote."""
        options, _ = read_options(None, {}, stored["options"])
        cells = tuple(Cell(**cell) for cell in stored["cells"])
        return cls(options, cells, stored["steps"], stored["num_samples"], stored["threads"])

    def run_config(self, cell: Cell, repeat: int, run_dir: str) -> RunConfig:
        """The options of one run; repeats differ in their seed."""
        options = self.options
        name, _, dataset = cell.model.partition("@")
        values: dict[str, Any] = {**QUIET, **options.run, "model": name, "strategy": cell.strategy, "run_dir": run_dir}
        if dataset:
            values["dataset"] = dataset
        if cell.model in self.num_samples:
            values["num_samples"] = self.num_samples[cell.model]
        values["engine"] = engine_and_backend(cell.engine)[0]
        values["num_epochs"] = options.epochs
        values["seed"] = (options.of_run("training.seed") or 0) + repeat - 1
        values["local_batch_size" if options.scaling == "weak" else "global_batch_size"] = cell.batch
        steps = self.steps.get(_step_key(cell.model, cell.batch), 0)
        values["steps_per_epoch"] = steps if cell.distribution else steps * cell.workers
        values["partition"] = "shuffled" if cell.distribution else "replicated"
        if str(cell.workers) in self.threads:
            values["threads"] = self.threads[str(cell.workers)]
        return RunConfig(**values)


def prepare(options: StudyOptions) -> tuple[StudyDesign, list[str]]:
    """Check everything that can be checked without training; gives the design and remarks for the user."""
    cores = usable_cores()
    workers = options.workers or _doubling(cores)
    engines = list(dict.fromkeys(resolve_engine(name) for name in options.engine))
    parts = {entry: _parts(options, name, dataset) for entry, name, dataset in models_and_datasets(options)}
    models = [(entry, options.batch or (_usual_batch(dataset),)) for entry, (dataset, _) in parts.items()]
    distributions = {"on": (True,), "off": (False,), "both": (True, False)}[options.distribution]
    cells = build_cells(models, engines, options.strategy, workers, distributions)
    _check_size(cells, options)
    steps = {_step_key(cell.model, cell.batch): num_steps(options, *parts[cell.model], cell.batch) for cell in cells}
    limits = {entry: _limit(options, dataset, steps, cells, entry) for entry, (dataset, _) in parts.items()}
    known = {entry: limit for entry, limit in limits.items() if limit is not None}
    design = StudyDesign(options, tuple(cells), steps, known, _threads(options, cells, cores))
    for cell in cells:
        design.run_config(cell, 1, "run").num_shards(cell.workers)
    return design, _remarks(options, cells, cores)


def num_steps(options: StudyOptions, dataset: Dataset, spec: ModelSpec, batch: int) -> int:
    """Steps of an epoch; with ``auto`` small networks get more of them than large ones, on any engine the same."""
    if options.steps == ALL:
        return 0
    if options.steps != AUTO:
        return int(options.steps)
    fitting = round(EPOCH_FLOPS / max(1, spec.training_flops * batch))
    there = MAX_STEPS if _is_made_up(options, dataset) else math.ceil(len(dataset.train) / batch)
    return min(max(fitting, MIN_STEPS), MAX_STEPS, there)


def _doubling(cores: int) -> tuple[int, ...]:
    """1, 2, 4 … up to the cores."""
    return tuple(1 << power for power in range(cores.bit_length()))


def _parts(options: StudyOptions, model: str, dataset: Any) -> tuple[Dataset, ModelSpec]:
    """The data without a limit, and the network that fits them."""
    config = RunConfig(**{**options.run, "model": model, "dataset": dataset}).replace(num_samples=None)
    loaded = make_dataset(config)
    spec = make_spec(config, loaded)
    check_fit(spec, loaded)
    target = parse_target(options.target)
    if target is not None:
        reported = ["loss", *(metric.name for metric in make_metrics(config, loaded)[1])]
        find_metric(target[0], [*reported, *(f"val_{name}" for name in reported if loaded.validation is not None)])
    return loaded, spec


def _usual_batch(dataset: Dataset) -> int:
    return DEFAULT_LOCAL_BATCH_SIZE_OF_MASKS if dataset.is_dense else DEFAULT_LOCAL_BATCH_SIZE


def _limit(
    options: StudyOptions, dataset: Dataset, steps: Mapping[str, int], cells: list[Cell], entry: str
) -> int | None:
    """How many samples all runs of a network get: with ``auto`` what its steps need, and some to validate."""
    if options.steps != AUTO or options.of_run("dataset.num_samples") is not None:
        return None
    own = [cell for cell in cells if cell.model == entry]
    needed = max(steps[_step_key(entry, cell.batch)] * global_batch(cell, options.scaling) for cell in own)
    given = options.of_run("dataset.validation_split")
    split = DEFAULT_VALIDATION_SPLIT if given is None else float(given)
    total = math.ceil(needed / (1 - split)) + 1
    if _is_made_up(options, dataset):
        return total
    kept = len(dataset.train)
    available = kept if dataset.validation is None or not split else math.floor(kept / (1 - split))
    return min(total, available)


def _is_made_up(options: StudyOptions, dataset: Dataset) -> bool:
    """Whether there are as many samples as anyone wants."""
    return dataset.name.partition(":")[0] in _MADE_UP or bool(options.of_run("dataset.synthetic"))


def _threads(options: StudyOptions, cells: list[Cell], cores: int) -> dict[str, int]:
    """Every worker has the same share of the machine, so that twice the workers means twice the hardware."""
    if options.of_run("engine.threads") is not None or options.hosts:
        return {}
    most = max(cell.workers for cell in cells)
    counts = sorted({cell.workers for cell in cells})
    return {str(count): max(1, cores // (count if options.all_cores else most)) for count in counts}


def _check_size(cells: list[Cell], options: StudyOptions) -> None:
    for cell in cells:
        if options.scaling == "strong" and cell.workers > cell.batch:
            raise ConfigError(
                f"{cell.workers} workers are more than the {cell.batch} samples of a batch that they share: expected "
                "at least one for each. Give a larger batch, or scaling = weak"
            )
    num_runs = len(cells) * options.repeats
    if num_runs > MAX_RUNS:
        raise ConfigError(
            f"the grid has {num_runs:,} runs: expected at most {MAX_RUNS:,}. Give fewer values or repeats"
        )


def _remarks(options: StudyOptions, cells: list[Cell], cores: int) -> list[str]:
    most = max(cell.workers for cell in cells)
    remarks = []
    if most > cores and not options.hosts:
        remarks.append(f"{most} workers share {cores} {'core' if cores == 1 else 'cores'}: more cannot be expected")
    if all(cell.distribution for cell in cells) and options.distribution == "off":
        remarks.append("distribution = off makes no difference to one worker: it has all data in any case")
    return remarks


def _step_key(model: str, batch: int) -> str:
    return f"{model} {batch}"


def resolve_engine(text: str) -> str:
    """The full name, with the backend that Keras is set to where none is given; an engine that is missing raises."""
    name = text.strip().lower()
    known = (*ENGINES.all_names(), *(f"keras:{backend}" for backend in BACKENDS))
    if name not in known:
        raise UnknownNameError("engine", text, known)
    engine, _, backend = name.partition(":")
    if engine == "keras":
        backend = backend or default_backend()
        _require(name, "keras", "keras")
        _require(name, backend, BACKENDS.get(backend, "keras"))
        return f"keras:{backend}"
    library = ENGINES.find(engine).library
    if library is not None:
        _require(name, library, library)
    return engine


def engine_and_backend(name: str) -> tuple[str, str | None]:
    """``keras:jax`` as (``keras``, ``jax``)."""
    engine, _, backend = name.partition(":")
    return engine, backend or None


def default_backend() -> str:
    """What Keras would run on: KERAS_BACKEND, its configuration file, or TensorFlow."""
    if os.environ.get(BACKEND_VARIABLE):
        return os.environ[BACKEND_VARIABLE]
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        stored = json.loads((home / "keras.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "tensorflow"
    backend = stored.get("backend") if isinstance(stored, dict) else None
    return backend if isinstance(backend, str) and backend else "tensorflow"


def _require(name: str, module: str, extra: str) -> None:
    if find_spec(module) is None:
        raise UsageError(
            f"engine '{name}' needs {module}, which is not installed. Leave it out of the study, or install it with: "
            f'pip install "ringlet[{extra}]"'
        )

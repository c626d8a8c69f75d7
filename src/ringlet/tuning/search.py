"""Searching from Python: ``ringlet.tune``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringlet.config import RunConfig
from ringlet.config.assembly import Given
from ringlet.errors import InterruptedRunError, UsageError
from ringlet.tuning.directory import Record, create_search, default_path
from ringlet.tuning.options import SearchOptions, check_given, prepare
from ringlet.tuning.report import write_report
from ringlet.tuning.runner import TrialProgress, run_search
from ringlet.tuning.summary import best_record, ranked


@dataclass(frozen=True)
class TuneResult:
    """What a search gave."""

    directory: Path
    metric: str
    """What counts, by its name in the logs, such as ``val_loss``."""
    trials: tuple[Record, ...]
    """From best to worst; those that diverged or failed last."""
    best: Record
    config: RunConfig
    """The best configuration: ``Trainer(config=result.config)`` trains it."""


def tune(
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    method: str = "halving",
    metric: str = "",
    parallel: int = 0,
    workers: int = 1,
    directory: Path | str | None = None,
    keep_models: bool = False,
    **options: Any,
) -> TuneResult:
    """Search for the configuration that learns best; ``options`` are those of all trials, as a Trainer takes them.

    ``space`` names options and what they may be: ``{"optimizer.learning_rate": "log(1e-4,1e-1)", "optimizer.name":
    ["sgd", "adam"]}``. ``method`` is ``random``, ``halving`` or ``optuna``. Trials run in processes of their own,
    ``parallel`` at a time (0: as many as the cores allow), each on ``workers`` workers; data and networks are given by
    name. Everything is kept in ``directory``: the same call on the same directory continues an interrupted search.
    """
    check_given(options)
    given = [Given(name, value, name) for name, value in options.items()]
    about: dict[str, Any] = {"trials": trials, "method": method, "metric": metric, "parallel": parallel}
    search, _ = prepare(SearchOptions(**about, workers=workers, keep_models=keep_models), space, given)
    path = default_path("search", search.base.model.network) if directory is None else Path(directory)
    opened = create_search(path, search)
    finished = run_search(opened, _silent)
    write_report(opened)
    if not finished:
        raise InterruptedRunError(f"the search was interrupted; the same call with directory='{path}' continues it")
    records = list(opened.records().values())
    best = best_record(search, records)
    if best is None:
        reasons = next((record.reason for record in records), "")
        raise UsageError(f"all {len(records)} trials diverged or failed, the first one so: {reasons}. See {path}")
    return TuneResult(path, search.metric, tuple(ranked(search, records)), best, search.best_config(best.values))


def _silent(_: TrialProgress) -> None:
    """The library prints nothing."""

"""What a search leaves for people and programs: ``best.toml``, ``results.json``, ``report.html`` and the plots."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from ringlet import __version__
from ringlet.bench.plotting import Plot, can_draw
from ringlet.io.disk import write_whole
from ringlet.machine import describe_machine
from ringlet.optim.metric_names import is_maximised
from ringlet.study.page import facts, figure, html_table, page, paragraph, section
from ringlet.study.tables import metric_text
from ringlet.tuning.directory import BEST, FORMAT, PLOTS, REPORT, RESULTS, Record, TuneDirectory
from ringlet.tuning.options import Search
from ringlet.tuning.plots import all_plots
from ringlet.tuning.summary import best_record, ranked, trials_table

NO_PLOTS = 'Plots need Matplotlib: pip install "ringlet[report]", then `ringlet tune resume DIR` draws them.'
_NUMBERS = ("trial", "epochs", "s")


def write_report(directory: TuneDirectory) -> dict[str, Any]:
    """Write all files; gives what ``results.json`` holds."""
    search, records = directory.search, list(directory.records().values())
    document = results(search, records)
    write_whole(directory.path / RESULTS, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    best = best_record(search, records)
    if best is not None:
        write_whole(directory.path / BEST, search.best_config(best.values).to_toml().encode())
    plots = all_plots(search, records) if can_draw() else []
    for plot in plots:
        (directory.path / PLOTS).mkdir(exist_ok=True)
        plot.save(directory.path / PLOTS / f"{plot.name}.png")
    write_whole(directory.path / REPORT, _page(search, records, plots).encode())
    return document


def results(search: Search, records: Sequence[Record]) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    best = best_record(search, records)
    return {
        "format": FORMAT,
        "ringlet": __version__,
        "search": search.to_dict(),
        "metric": search.metric,
        "goal": "max" if is_maximised(search.metric) else "min",
        "best": None if best is None else {"trial": best.trial, "value": best.value, "values": dict(best.values)},
        "trials": [record.to_dict() for record in ranked(search, records)],
        "machine": describe_machine().facts(),
    }


def best_text(search: Search, best: Record | None, num_failed: int) -> str:
    """The outcome in a sentence or two."""
    failed = f" {num_failed} trial{'s' if num_failed > 1 else ''} diverged or failed." if num_failed else ""
    if best is None or best.value is None:
        return f"No trial has a result.{failed}"
    values = ", ".join(f"{name} = {value}" for name, value in best.values.items())
    shown = metric_text(search.metric, best.value)
    return f"Best: trial {best.trial}, {search.metric} {shown} after {len(best.curve)} epochs: {values}.{failed}"


def _page(search: Search, records: Sequence[Record], plots: list[Plot]) -> str:
    best, table = best_record(search, records), trials_table(search, records)
    failed = [record for record in ranked(search, records) if record.value is None]
    texts = [column for column in table.columns if column not in (*_NUMBERS, search.metric)]
    drawn = [figure(plot.inline_svg(), plot.caption) for plot in plots]
    goal = "more is better" if is_maximised(search.metric) else "less is better"
    method = f"{search.options.method}: {search.options.method.describe(search.question)}; {search.metric}, {goal}."
    parts = [
        section("Best", paragraph(best_text(search, best, len(failed))), paragraph(method, faint=True)),
        section("Plots", *(drawn or [paragraph(NO_PLOTS)])),
        section("Trials", html_table(table.columns, table.rows, texts=texts)),
        section("Space", facts({name: str(values) for name, values in search.space.to_dict().items()})),
        section("Machine", facts(describe_machine().facts())),
    ]
    title = f"Search of {search.base.model.network} on {search.base.dataset.label}"
    return page(title, f"Ringlet {__version__}, {time.strftime('%d %B %Y, %H:%M')}", parts)

"""What a study leaves for people and programs: ``study.json``, ``report.html`` and PNG files of the plots."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from ringlet import __version__
from ringlet.bench.plotting import Plot, can_draw
from ringlet.io.disk import write_whole
from ringlet.machine import describe_machine
from ringlet.study import tables
from ringlet.study.directory import FORMAT, PLOTS, REPORT, RESULTS, StudyDirectory
from ringlet.study.grid import run_order
from ringlet.study.page import facts, figure, folded, html_table, page, paragraph, section, verdicts
from ringlet.study.plots import all_plots
from ringlet.study.summary import Row, Summary, summarise
from ringlet.study.verdicts import Verdict, all_verdicts

NO_PLOTS = 'Plots need Matplotlib: pip install "ringlet[report]", then `ringlet study DIR` draws them.'
MAX_SHOWN_ROWS = 40
"""Longer tables are folded."""
_TEXTS = ("model", "engine", "strategy", "distribution", "cell", "reason")


def collect(study: StudyDirectory) -> Summary:
    """All records of a study, put together."""
    found = {place: study.read_record(place) for place in run_order(study.design.cells, study.design.options.repeats)}
    return summarise(study.design, {place: record for place, record in found.items() if record is not None})


def results(summary: Summary) -> dict[str, Any]:
    """Everything as plain values, for JSON."""
    target = summary.target
    return {
        "format": FORMAT,
        "ringlet": __version__,
        "options": summary.design.options.to_dict(),
        "steps": dict(summary.design.steps),
        "threads": dict(summary.design.threads),
        "machine": describe_machine().facts(),
        "cells": [_cell_results(summary, row) for row in summary.rows],
        "verdicts": [verdict.to_dict() for verdict in all_verdicts(summary)],
        "target": None if target is None else {"metric": target[0], "value": target[1]},
    }


def write_report(study: StudyDirectory, summary: Summary) -> dict[str, Any]:
    """Write all files; gives what ``study.json`` holds."""
    document = results(summary)
    write_whole(study.path / RESULTS, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
    plots = all_plots(summary) if can_draw() and summary.measured else []
    for plot in plots:
        (study.path / PLOTS).mkdir(exist_ok=True)
        plot.save(study.path / PLOTS / f"{plot.name}.png")
    write_whole(study.path / REPORT, report_html(summary, document["machine"], plots).encode())
    return document


def report_html(summary: Summary, machine: Mapping[str, str], plots: list[Plot]) -> str:
    """The page."""
    models = list(dict.fromkeys(cell.model for cell in summary.design.cells))
    found = all_verdicts(summary)
    parts = [
        section("Verdicts", _verdict_list(found)),
        section("Results", paragraph(tables.common_text(summary)), _table(tables.results_table(summary))),
        paragraph(tables.method_text(summary), faint=True),
    ]
    drawn = [figure(plot.inline_svg(), plot.caption) for plot in plots]
    parts.append(section("Plots", *(drawn or [paragraph(NO_PLOTS)])))
    failures, epochs = tables.failures_table(summary), tables.epochs_table(summary)
    if failures is not None:
        parts.append(section("Failed runs", _table(failures)))
    if epochs is not None:
        shown = _table(epochs)
        few = len(epochs.rows) <= MAX_SHOWN_ROWS
        parts.append(section("Epoch by epoch", shown if few else folded(f"{len(epochs.rows)} rows", shown)))
    parts.append(section("Machine", facts(machine)))
    subtitle = f"Ringlet {__version__}, {time.strftime('%d %B %Y, %H:%M')}"
    return page(f"Study of {', '.join(models)}", subtitle, parts)


def _verdict_list(found: list[Verdict]) -> str:
    if not found:
        return paragraph("There is nothing to compare: give two numbers of workers, engines, strategies or batches.")
    return verdicts([(verdict.context, verdict.sentence, not verdict.is_noise) for verdict in found])


def _table(table: tables.TextTable) -> str:
    return html_table(table.columns, table.rows, texts=_TEXTS)


def _cell_results(summary: Summary, row: Row) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": row.cell.name,
        **row.cell.to_dict(),
        "failures": {str(repeat): reason for repeat, reason in row.failures.items()},
    }
    if not row.runs:
        return about
    scaling, target = summary.scaling(row), summary.target
    about |= {
        "seconds_per_epoch": row.seconds.to_dict(),
        "samples_per_second": row.rate.to_dict(),
        "shares": row.shares,
        "final": {name: found.to_dict() for name, found in row.final.items()},
        "runs": {str(repeat): run.to_dict() for repeat, run in row.runs.items()},
    }
    if scaling is not None:
        about |= {
            "baseline": scaling.baseline.name,
            "speed_up": scaling.speed_up.to_dict(),
            "efficiency": scaling.efficiency,
        }
    if target is not None:
        about["seconds_to_target"] = {str(repeat): seconds for repeat, seconds in row.time_to(*target).items()}
    return about

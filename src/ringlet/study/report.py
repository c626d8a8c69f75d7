"""What a study leaves for people and programs: ``study.json``, ``report.html`` and PNG files of the plots.

The page is one self-contained file: no scripts, no external resources, readable on light and dark screens and on paper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from ringlet import __version__
from ringlet.bench.plotting import Plot, can_draw
from ringlet.io.disk import write_whole
from ringlet.machine import describe_machine
from ringlet.study import tables
from ringlet.study.directory import FORMAT, PLOTS, REPORT, RESULTS, StudyDirectory
from ringlet.study.grid import run_order
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


def page(title: str, subtitle: str, parts: Sequence[str]) -> str:
    """The whole document; ``parts`` are HTML from the functions below."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="faint">{escape(subtitle)}</p>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _style() -> str:
    return resources.files("ringlet.study").joinpath("style.css").read_text(encoding="utf-8")


def section(heading: str, *parts: str) -> str:
    """A heading and what follows."""
    return f"<h2>{escape(heading)}</h2>\n" + "\n".join(parts)


def paragraph(text: str, *, faint: bool = False) -> str:
    """Plain text."""
    kind = ' class="faint"' if faint else ""
    return f"<p{kind}>{escape(text)}</p>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: Sequence[str] = ()) -> str:
    """A table of plain texts; columns named in ``texts`` are set left, all others are numbers."""
    kinds = [' class="text"' if column in texts else "" for column in columns]
    head = "".join(f"<th{kind}>{_breakable(column)}</th>" for column, kind in zip(columns, kinds, strict=True))
    lines = [
        "<tr>" + "".join(_table_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _breakable(name: str) -> str:
    """A column's name that may go over several lines."""
    return escape(name).replace("_", "_<wbr>")


def _table_cell(text: str, kind: str) -> str:
    if kind and len(text) > 60:
        kind = ' class="text long"'
    return f"<td{kind}>{escape(text)}</td>"


def facts(values: Mapping[str, str]) -> str:
    """Names and values, one pair per line."""
    return (
        '<dl class="facts">' + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in values.items()) + "</dl>"
    )


def verdicts(sentences: Sequence[tuple[str, str, bool]]) -> str:
    """(where, sentence, whether it is sure) as a list."""
    items = []
    for where, sentence, sure in sentences:
        kind = "" if sure else ' class="unsure"'
        items.append(f'<li{kind}><span class="where">{escape(where)}</span>{escape(sentence)}</li>')
    return '<ul class="verdicts">\n' + "\n".join(items) + "\n</ul>"


def figure(svg: str, caption: str) -> str:
    """A drawing, as inline SVG from :meth:`ringlet.bench.plotting.Plot.inline_svg`, with its caption."""
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def folded(summary: str, *parts: str) -> str:
    """What is shown when asked for."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"

"""The plots of a study: speed-up, efficiency, where the time goes, and learning curves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from ringlet.bench.plotting import PHASE_COLOURS, Plot, finish, ideal_style, line_style, make_figure
from ringlet.libraries import require
from ringlet.study.grid import Cell
from ringlet.study.measurement import GROUPS
from ringlet.study.summary import Row, Scaling, Summary
from ringlet.study.verdicts import describe

Errors = list[list[float]]


def all_plots(summary: Summary) -> list[Plot]:
    """What there is to draw."""
    plots = []
    if len({row.cell.workers for row in summary.measured}) > 1:
        caption = "Speed-up over the fewest workers; bars show the range of the repeats."
        plots.append(Plot("speed-up", caption, partial(_speed_up, summary)))
        plots.append(Plot("efficiency", "Efficiency: the share of the ideal line.", partial(_efficiency, summary)))
    if any(row.shares for row in summary.measured):
        plots.append(Plot("shares", "Where the time of a worker goes.", partial(_shares, summary)))
    if summary.main_metric is not None:
        caption = f"{summary.main_metric} after every epoch, over training time; medians of the repeats."
        plots.append(Plot("learning", caption, partial(_learning, summary, summary.main_metric)))
    return plots


def _models(summary: Summary) -> list[str]:
    return list(dict.fromkeys(row.cell.model for row in summary.measured))


def _lines(summary: Summary, model: str) -> dict[str, list[Row]]:
    """Rows of a network that differ in workers alone, by what they have in common."""
    lines: dict[str, list[Row]] = {}
    for row in summary.measured:
        if row.cell.model == model and summary.scaling(row) is not None:
            lines.setdefault(_short_name(summary, row.cell, "workers"), []).append(row)
    for name, rows in lines.items():
        base = summary.baseline(rows[0])
        joined = rows if base is None or base in rows else [base, *rows]
        lines[name] = sorted(joined, key=lambda row: row.cell.workers)
    return {name: rows for name, rows in lines.items() if len(rows) > 1}


def _speed_up(summary: Summary, ink: str) -> Any:
    def bars(found: list[Scaling]) -> Errors:
        speeds = [scaling.speed_up for scaling in found]
        return [[speed.median - speed.low for speed in speeds], [speed.high - speed.median for speed in speeds]]

    return _over_workers(summary, ink, "speed-up", 4.2, lambda scaling: scaling.speed_up.median, bars)


def _efficiency(summary: Summary, ink: str) -> Any:
    return _over_workers(summary, ink, "efficiency in %", 3.8, lambda scaling: 100 * scaling.efficiency)


def _over_workers(
    summary: Summary,
    ink: str,
    label: str,
    height: float,
    value: Callable[[Scaling], float],
    bars: Callable[[list[Scaling]], Errors] | None = None,
) -> Any:
    """One panel for each network, one line for each engine, strategy and batch, beside the ideal one."""
    figure, panels = make_figure(height, len(_models(summary)))
    counts = sorted({row.cell.workers for row in summary.measured})
    for axes, model in zip(panels, _models(summary), strict=True):
        ideal = [100.0] * len(counts) if bars is None else [count / counts[0] for count in counts]
        axes.plot(counts, ideal, **ideal_style(ink))
        for place, (name, rows) in enumerate(_lines(summary, model).items()):
            found = {row.cell.workers: scaling for row in rows if (scaling := summary.scaling(row))}
            errors = None if bars is None else bars(list(found.values()))
            axes.errorbar(list(found), list(map(value, found.values())), yerr=errors, label=name, **line_style(place))
        axes.set(title=model, xlabel="workers", ylabel=label)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.margins(x=0.08)
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        finish(axes)
    return figure


def _shares(summary: Summary, _ink: str) -> Any:
    rows = [row for row in summary.measured if row.shares]
    figure, (axes,) = make_figure(1.1 + 0.36 * len(rows), wide=True)
    left = [0.0] * len(rows)
    for group in GROUPS:
        widths = [100 * row.shares[group] for row in rows]
        bars = axes.barh(range(len(rows)), widths, left=left, color=PHASE_COLOURS[group], label=group, height=0.72)
        texts = [f"{width:.0f}%" if width >= 6 else "" for width in widths]
        axes.bar_label(bars, texts, label_type="center", color="white", fontsize=9)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(rows)), [describe(summary, row.cell) for row in rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the time in %")
    figure.legend(loc="outside upper center", ncols=len(GROUPS), frameon=False, fontsize=9)
    return figure


def _learning(summary: Summary, metric: str, ink: str) -> Any:
    models = _models(summary)
    names = list(dict.fromkeys(_short_name(summary, row.cell) for row in summary.measured))
    figure, panels = make_figure(4.2, len(models))
    for axes, model in zip(panels, models, strict=True):
        rows = [row for row in summary.measured if row.cell.model == model]
        for row in rows:
            points = learning_curve(row, metric)
            name = _short_name(summary, row.cell)
            axes.plot([x for x, _ in points], [y for _, y in points], label=name, **line_style(names.index(name)))
        if summary.target is not None:
            axes.axhline(summary.target[1], **ideal_style(ink, "target"))
        axes.set(title=model, xlabel="seconds of training", ylabel=metric)
        if _are_far_apart(rows):
            _use_logarithm(axes)
        axes.grid(visible=True, alpha=0.15)
    _legend_below(figure, panels)
    return figure


def _legend_below(figure: Any, panels: list[Any]) -> None:
    """One legend for all panels."""
    entries = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    fitting = int(14 * figure.get_figwidth() / (5 + max(map(len, entries))))  # letters that fit beside each other
    columns = max(1, min(fitting, len(entries)))
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _use_logarithm(axes: Any) -> None:
    """A logarithmic axis with plain numbers."""
    ticker = require("matplotlib.ticker")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())


def _short_name(summary: Summary, cell: Cell, *leave_out: str) -> str:
    """Without the network, which is the title of its panel."""
    return describe(summary, cell, "model", *leave_out) or "measured"


def _are_far_apart(rows: list[Row]) -> bool:
    """Whether some cells would vanish at the left edge of a linear axis."""
    totals = [sum(epoch.seconds for epoch in run.epochs) for row in rows for run in row.runs.values()]
    return max(totals) > 10 * max(min(totals), 1e-9)


def learning_curve(row: Row, metric: str) -> list[tuple[float, float]]:
    """(training seconds, metric) after every epoch, medians over the repeats that have it."""
    points = []
    for index in range(max(len(run.epochs) for run in row.runs.values())):
        runs = [run for run in row.runs.values() if index < len(run.epochs) and metric in run.epochs[index].metrics]
        if runs:
            seconds = [sum(epoch.seconds for epoch in run.epochs[: index + 1]) for run in runs]
            points.append((median(seconds), median(run.epochs[index].metrics[metric] for run in runs)))
    return points

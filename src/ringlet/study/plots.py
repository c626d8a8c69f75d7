"""The plots of a study, drawn once for each use: PNG files on white, and SVG that takes the colours of its page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from ringlet.libraries import require
from ringlet.study.grid import Cell
from ringlet.study.measurement import GROUPS
from ringlet.study.summary import Row, Summary
from ringlet.study.verdicts import describe

INK = "#24292f"
_PAGE_INK = "#010203"
"""A colour that nothing else has: in SVG for the page it becomes the page's text colour."""
_COLOURS = ("#1f77b4", "#e07b00", "#2ca02c", "#d1495b", "#8c6bd1", "#8c6d31", "#17a2b8", "#7f8c8d")
_GROUP_COLOURS = {
    "compute": "#3a86c8",
    "exchange": "#e07b00",
    "wait": "#d1495b",
    "data": "#2ca02c",
    "other": "#98a2b3",
}
_MARKERS = "osD^vP*X"


@dataclass(frozen=True)
class Plot:
    """A drawing by name."""

    name: str
    caption: str
    draw: Callable[[str], Any]
    """Given the colour of lines and letters, makes a Matplotlib figure."""

    def save(self, path: Path) -> None:
        """As PNG."""
        with _settings(INK):
            self.draw(INK).savefig(path, dpi=120, facecolor="white")

    def inline_svg(self) -> str:
        """As SVG that stands within an HTML page: no links, names of its own, and the page's text colour."""
        stream = io.StringIO()
        with _settings(_PAGE_INK):
            self.draw(_PAGE_INK).savefig(stream, format="svg", transparent=True, metadata={"Date": None})
        return inline_svg(stream.getvalue(), self.name)


def can_draw() -> bool:
    """Whether Matplotlib is there."""
    return find_spec("matplotlib") is not None


def all_plots(summary: Summary) -> list[Plot]:
    """What there is to draw."""
    plots = []
    if len({row.cell.workers for row in summary.measured}) > 1:
        plots.append(
            Plot(
                "speed-up", "Speed-up over the fewest workers; bars show the range of the repeats.", _speed_up(summary)
            )
        )
        plots.append(Plot("efficiency", "Efficiency: the share of the ideal line.", _efficiency(summary)))
    if any(row.shares for row in summary.measured):
        plots.append(Plot("shares", "Where the time of a worker goes.", _shares(summary)))
    if summary.main_metric is not None:
        caption = f"{summary.main_metric} after every epoch, over training time; medians of the repeats."
        plots.append(Plot("learning", caption, _learning(summary)))
    return plots


def inline_svg(text: str, prefix: str) -> str:
    """Matplotlib's SVG document as an element for HTML: without declarations, metadata and namespaces."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    box = re.search(r'viewBox="([^"]+)"', text)
    place = box[1] if box else "0 0 720 432"
    width = round(96 / 72 * float(place.split()[2]))  # points as pixels: never larger than drawn
    text = re.sub(r"<svg\s[^>]*>", f'<svg viewBox="{place}" style="max-width: {width}px" role="img">', text, count=1)
    return text.replace(_PAGE_INK, "currentColor").strip()


@contextmanager
def _settings(ink: str) -> Iterator[None]:
    matplotlib = require("matplotlib")
    colours = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink)
    look = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "ringlet"}
    with matplotlib.rc_context({**colours, **look, "legend.labelcolor": ink, "grid.color": ink}):
        yield


def _figure(height: float, num_panels: int = 1, *, wide: bool = False) -> tuple[Any, list[Any]]:
    """A figure with panels of this height, two in a row."""
    canvas = require("matplotlib.backends.backend_agg").FigureCanvasAgg
    columns, lines = min(num_panels, 2), -(-num_panels // 2)
    size = (10.5 if wide or columns > 1 else 7.0, height * lines)
    figure = require("matplotlib.figure").Figure(figsize=size, layout="constrained")
    canvas(figure)
    return figure, [figure.add_subplot(lines, columns, place + 1) for place in range(num_panels)]


def _models(summary: Summary) -> list[str]:
    return list(dict.fromkeys(row.cell.model for row in summary.measured))


def _lines(summary: Summary, model: str) -> dict[str, list[Row]]:
    """Rows of a network that differ in workers alone, by what they have in common."""
    lines: dict[str, list[Row]] = {}
    for row in summary.measured:
        if row.cell.model == model and summary.scaling(row) is not None:
            name = describe(summary, row.cell, leave_out="workers").removeprefix(f"{model}, ").removeprefix(model)
            lines.setdefault(name or "measured", []).append(row)
    for name, rows in lines.items():
        base = summary.baseline(rows[0])
        joined = rows if base is None or base in rows else [base, *rows]
        lines[name] = sorted(joined, key=lambda row: row.cell.workers)
    return {name: rows for name, rows in lines.items() if len(rows) > 1}


def _speed_up(summary: Summary) -> Callable[[str], Any]:
    def draw(ink: str) -> Any:
        figure, panels = _figure(4.2, len(_models(summary)))
        for axes, model in zip(panels, _models(summary), strict=True):
            counts = sorted({row.cell.workers for row in summary.measured})
            axes.plot(
                counts, [count / counts[0] for count in counts], "--", color=ink, lw=1.2, alpha=0.6, label="ideal"
            )
            for place, (name, rows) in enumerate(_lines(summary, model).items()):
                found = [(row.cell.workers, scaling.speed_up) for row in rows if (scaling := summary.scaling(row))]
                middle = [speed.median for _, speed in found]
                ranges = [
                    [speed.median - speed.low for _, speed in found],
                    [speed.high - speed.median for _, speed in found],
                ]
                axes.errorbar([count for count, _ in found], middle, yerr=ranges, label=name, **_line_style(place))
            _finish(axes, model, counts, "speed-up")
        return figure

    return draw


def _efficiency(summary: Summary) -> Callable[[str], Any]:
    def draw(ink: str) -> Any:
        figure, panels = _figure(3.8, len(_models(summary)))
        for axes, model in zip(panels, _models(summary), strict=True):
            counts = sorted({row.cell.workers for row in summary.measured})
            axes.axhline(100, ls="--", color=ink, lw=1.2, alpha=0.6, label="ideal")
            for place, (name, rows) in enumerate(_lines(summary, model).items()):
                found = [(row.cell.workers, scaling.efficiency) for row in rows if (scaling := summary.scaling(row))]
                axes.plot(
                    [count for count, _ in found], [100 * share for _, share in found], label=name, **_line_style(place)
                )
            _finish(axes, model, counts, "efficiency in %")
        return figure

    return draw


def _line_style(place: int) -> dict[str, Any]:
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": _MARKERS[place % len(_MARKERS)], "ms": 6, "lw": 1.8}


def _finish(axes: Any, title: str, counts: list[int], label: str) -> None:
    axes.set(title=title, xlabel="workers", ylabel=label)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.margins(x=0.08)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    axes.grid(visible=True, alpha=0.15)
    axes.legend(frameon=False, fontsize=9)


def _shares(summary: Summary) -> Callable[[str], Any]:
    rows = [row for row in summary.measured if row.shares]

    def draw(_ink: str) -> Any:
        figure, (axes,) = _figure(1.1 + 0.36 * len(rows), wide=True)
        names = [describe(summary, row.cell) for row in rows]
        left = [0.0] * len(rows)
        for group in GROUPS:
            widths = [100 * row.shares[group] for row in rows]
            axes.barh(range(len(rows)), widths, left=left, color=_GROUP_COLOURS[group], label=group, height=0.72)
            for place, width in enumerate(widths):
                if width >= 6:
                    axes.text(
                        left[place] + width / 2,
                        place,
                        f"{width:.0f}%",
                        ha="center",
                        va="center",
                        color="white",
                        fontsize=9,
                    )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.set(xlim=(0, 100), xlabel="share of the time in %")
        figure.legend(loc="outside upper center", ncols=len(GROUPS), frameon=False, fontsize=9)
        return figure

    return draw


def _learning(summary: Summary) -> Callable[[str], Any]:
    metric = summary.main_metric or "loss"
    names = list(dict.fromkeys(_short_name(summary, row.cell, row.cell.model) for row in summary.measured))

    def draw(ink: str) -> Any:
        models = _models(summary)
        figure, panels = _figure(4.2, len(models))
        for axes, model in zip(panels, models, strict=True):
            rows = [row for row in summary.measured if row.cell.model == model]
            for row in rows:
                points = learning_curve(row, metric)
                name = _short_name(summary, row.cell, model)
                style = _line_style(names.index(name))
                axes.plot([x for x, _ in points], [y for _, y in points], label=name, **style)
            if summary.target is not None:
                axes.axhline(summary.target[1], ls="--", color=ink, lw=1.2, alpha=0.6, label="target")
            axes.set(title=model, xlabel="seconds of training", ylabel=metric)
            if _are_far_apart(rows):
                _use_logarithm(axes)
            axes.grid(visible=True, alpha=0.15)
        _legend_below(figure, panels)
        return figure

    return draw


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


def _short_name(summary: Summary, cell: Cell, model: str) -> str:
    return describe(summary, cell).removeprefix(f"{model}, ").removeprefix(model) or "measured"


def _are_far_apart(rows: list[Row]) -> bool:
    """Whether some cells would vanish at the left edge of a linear axis."""
    totals = [sum(epoch.seconds for epoch in run.epochs) for row in rows for run in row.runs.values()]
    return max(totals) > 10 * max(min(totals), 1e-9)


def learning_curve(row: Row, metric: str) -> list[tuple[float, float]]:
    """(training seconds, figure) after every epoch, medians over the repeats that have it."""
    points = []
    for index in range(max(len(run.epochs) for run in row.runs.values())):
        runs = [run for run in row.runs.values() if index < len(run.epochs) and metric in run.epochs[index].figures]
        if runs:
            seconds = [sum(epoch.seconds for epoch in run.epochs[: index + 1]) for run in runs]
            points.append((median(seconds), median(run.epochs[index].figures[metric] for run in runs)))
    return points

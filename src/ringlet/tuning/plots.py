"""The plots of a search: every trial's curve, and what each option did."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ringlet.bench.plotting import COLOURS, Plot, make_figure
from ringlet.tuning.directory import Record
from ringlet.tuning.options import Search
from ringlet.tuning.space import Dimension, Range
from ringlet.tuning.summary import best_record, last_records, value_text

MAX_PANELS = 8
_FAINT = "#9aa3b2"


def all_plots(search: Search, records: Sequence[Record]) -> list[Plot]:
    """What there is to draw; nothing before a trial has a result."""
    best, last = best_record(search, records), last_records(records)
    if best is None:
        return []
    caption = f"{search.metric} after every epoch; the best trial is trial {best.trial}."
    shown = f"{search.metric} of every trial over each option; red: the best; faint: not trained to the end."
    return [
        Plot("curves", caption, partial(_curves, search, last, best)),
        Plot("options", shown, partial(_options, search, last, best)),
    ]


def _curves(search: Search, records: list[Record], best: Record, _ink: str) -> Any:
    figure, (axes,) = make_figure(4.2, wide=True)
    for record in (*(record for record in records if record is not best), best):
        points = [(epoch, value) for epoch, value in enumerate(record.curve, 1) if value is not None]
        style = {"color": COLOURS[0], "lw": 2.4, "marker": "o", "ms": 4} if record is best else _faint_line()
        axes.plot([x for x, _ in points], [y for _, y in points], **style)
    _spread(axes, [value for record in records for value in record.curve if value is not None])
    axes.set(xlabel="epochs", ylabel=search.metric)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=True, alpha=0.15)
    return figure


def _faint_line() -> dict[str, Any]:
    return {"color": _FAINT, "lw": 1.0, "marker": "o", "ms": 2, "alpha": 0.8}


def _options(search: Search, records: list[Record], best: Record, _ink: str) -> Any:
    dimensions = search.space.dimensions[:MAX_PANELS]
    figure, panels = make_figure(3.4, len(dimensions))
    for axes, dimension in zip(panels, dimensions, strict=True):
        _scatter(axes, search, dimension, records, best)
    return figure


def _scatter(axes: Any, search: Search, dimension: Dimension, records: list[Record], best: Record) -> None:
    """One dot per trial that has the option and a result."""
    found = [record for record in records if record.value is not None and dimension.name in record.values]
    full = max(record.epochs for record in records)
    for record in found:
        colour = COLOURS[4] if record is best else COLOURS[0] if record.epochs == full else _FAINT
        axes.plot([_place(dimension, record)], [record.value], "o", color=colour, ms=8 if record is best else 5)
    if isinstance(dimension.values, Range):
        axes.set_xscale("log" if dimension.values.scale == "log" else "linear")
    else:
        names = [value_text(value) for value in dimension.values]
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    _spread(axes, [record.value for record in found if record.value is not None])
    axes.set(xlabel=dimension.name, ylabel=search.metric)
    axes.grid(visible=True, alpha=0.15)


def _place(dimension: Dimension, record: Record) -> float:
    value = record.values[dimension.name]
    if isinstance(dimension.values, Range):
        return float(value)
    plain = [list(own) if isinstance(own, tuple) else own for own in dimension.values]
    return float(plain.index(list(value) if isinstance(value, tuple) else value))


def _spread(axes: Any, values: list[float]) -> None:
    """A logarithmic axis where a few bad trials would press all others flat."""
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axes.set_yscale("log")

"""The results as columns and rows of text, for the terminal and the page alike."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ringlet.bench.timing import Estimate
from ringlet.study.grid import Cell
from ringlet.study.measurement import GROUPS
from ringlet.study.summary import Row, Summary
from ringlet.study.verdicts import describe, short_name

_PERCENT = ("accuracy", "dice", "iou")
NOT_REACHED = "not reached"
MAX_EPOCH_ROWS = 100
MAX_SIDE_BY_SIDE = 3


@dataclass(frozen=True)
class TextTable:
    """Columns, and rows of as many texts."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def results_table(summary: Summary) -> TextTable:
    """One row per cell; what is the same for all cells is left out (see :func:`common_text`)."""
    varying = _varying(summary)
    metrics = _metrics(summary)
    target = summary.target
    columns = [*varying, "s/epoch", "samples/s", "speed-up", "of ideal", *GROUPS, *map(_label, metrics)]
    columns += [] if target is None else [f"s to {target_text(target)}"]
    rows = []
    for row in summary.rows:
        cells = [_dimension(row.cell, name) for name in varying]
        cells += _speeds(summary, row) + _shares(row) + [_final(row, metric) for metric in metrics]
        cells += [] if target is None else [time_to_text(row, target)]
        rows.append(tuple(cells))
    return TextTable(tuple(columns), tuple(rows))


def epochs_table(summary: Summary) -> TextTable | None:
    """Epoch by epoch: time, training and validation metric of every cell, medians over repeats.

    Few cells stand side by side, many below each other.
    """
    metric = summary.main_metric
    if metric is None:
        return None
    bare = metric.removeprefix("val_")
    names = list(dict.fromkeys((bare, metric)))
    found = {short_name(summary, row.cell): _epoch_rows(row, names) for row in summary.measured}
    if len(found) > MAX_SIDE_BY_SIDE:
        rows = [(cell, *line) for cell, lines in found.items() for line in lines]
        return TextTable(("cell", "epoch", "s", *map(_label, names)), tuple(rows))
    columns = ["epoch", *(f"{cell}: {name}" for cell in found for name in ("s", *map(_label, names)))]
    rows = []
    for index in range(max(len(lines) for lines in found.values())):
        parts = [lines[index][1:] if index < len(lines) else ("",) * (1 + len(names)) for lines in found.values()]
        rows.append((str(index + 1), *(text for part in parts for text in part)))
    return TextTable(tuple(columns), tuple(rows))


def _epoch_rows(row: Row, names: list[str]) -> list[tuple[str, ...]]:
    """(epoch, seconds, metrics) as text."""
    lines = []
    for index in range(min(MAX_EPOCH_ROWS, max(len(run.epochs) for run in row.runs.values()))):
        epochs = [run.epochs[index] for run in row.runs.values() if index < len(run.epochs)]
        values = [[epoch.metrics[name] for epoch in epochs if name in epoch.metrics] for name in names]
        shown = [metric_text(name, median(own)) if own else "" for name, own in zip(names, values, strict=True)]
        lines.append((str(index + 1), seconds_text(median(epoch.seconds for epoch in epochs)), *shown))
    return lines


def failures_table(summary: Summary) -> TextTable | None:
    """Runs that failed, and why."""
    rows = [
        (describe(summary, row.cell), str(repeat), reason)
        for row in summary.rows
        for repeat, reason in row.failures.items()
    ]
    return TextTable(("cell", "repeat", "reason"), tuple(rows)) if rows else None


def common_text(summary: Summary) -> str:
    """What all cells have in common, in a line."""
    options, cell = summary.design.options, summary.design.cells[0]
    varying = _varying(summary)
    words = [f"{name} {_dimension(cell, name)}" for name in ("model", "engine", "strategy") if name not in varying]
    words += [f"batch {cell.batch}"] if "batch" not in varying else []
    meaning = "of all workers together" if options.scaling == "strong" else "of each worker"
    words.append(f"{options.scaling} scaling (the batch is that {meaning})")
    words.append(_counts_text(summary))
    return ", ".join(words)


def method_text(summary: Summary) -> str:
    """How to read the results."""
    options = summary.design.options
    first = "the first epoch warms up and is not counted; " if options.epochs > 1 else ""
    threads = sorted(set(summary.design.threads.values()))
    share = f" Every worker has {threads[0]} thread{'s' if threads[0] > 1 else ''}." if len(threads) == 1 else ""
    if options.all_cores and threads:
        share = " The cores of the machine are divided among the workers of a cell."
    return (
        f"Times are of training alone, without validation: {first}the median over epochs, then over repeats; ± is half "
        "their range. Speed-up compares samples per second with the fewest workers of the same engine, "
        f"repeat by repeat.{share} Shares are means over workers: compute is forward, backward and metrics; exchange "
        "is adding up, exchanging and updating; data is waiting for the next batch."
    )


def _counts_text(summary: Summary) -> str:
    options = summary.design.options
    steps = sorted(set(summary.design.steps.values()))
    told = "all data" if steps == [0] else f"{' or '.join(map(str, steps))} steps"
    repeats = f"{options.repeats} repeat{'s' if options.repeats > 1 else ''}"
    return f"{options.epochs} epoch{'s' if options.epochs > 1 else ''} of {told}, {repeats}"


def _varying(summary: Summary) -> list[str]:
    """Dimensions in which cells differ; workers are always shown."""
    cells = summary.design.cells
    names = ("model", "engine", "strategy", "batch", "distribution", "workers")
    return [name for name in names if name == "workers" or len({getattr(cell, name) for cell in cells}) > 1]


def _dimension(cell: Cell, name: str) -> str:
    if name == "distribution":
        return "shared out" if cell.distribution else "all each"
    return str(getattr(cell, name))


def _metrics(summary: Summary) -> list[str]:
    """The main metric of training and validation, and of the test if there was one."""
    metric = summary.main_metric
    if metric is None:
        return []
    bare = metric.removeprefix("val_")
    known = {name for row in summary.measured for name in row.final}
    return [name for name in dict.fromkeys((bare, metric, f"test_{bare}")) if name in known]


def _label(metric: str) -> str:
    """A short name for a column."""
    return metric.replace("accuracy", "acc")


def _speeds(summary: Summary, row: Row) -> list[str]:
    if not row.runs:
        return ["failed" if row.failures else "", "", "", ""]
    scaling = summary.scaling(row)
    speed_up = "" if scaling is None else f"{scaling.speed_up.median:.2f}x"
    efficiency = "" if scaling is None else f"{100 * scaling.efficiency:.0f}%"
    return [with_spread(row.seconds), f"{row.rate.median:,.0f}", speed_up, efficiency]


def with_spread(seconds: Estimate) -> str:
    """``1.52 ± 3%``."""
    spread = f" ± {100 * seconds.spread:.0f}%" if seconds.count > 1 else ""
    return seconds_text(seconds.median) + spread


def seconds_text(seconds: float) -> str:
    """Three digits that matter."""
    return f"{seconds:.0f}" if seconds >= 100 else f"{seconds:#.3g}" if seconds >= 0.001 else f"{seconds:.1g}"


def _shares(row: Row) -> list[str]:
    shares = row.shares if row.runs else {}
    return [f"{100 * shares[group]:.0f}%" if shares else "" for group in GROUPS]


def _final(row: Row, metric: str) -> str:
    found = row.final.get(metric) if row.runs else None
    return "" if found is None else metric_text(metric, found.median)


def metric_text(name: str, value: float) -> str:
    """A share in per cent, anything else with four digits."""
    return f"{100 * value:.2f}%" if any(part in name for part in _PERCENT) else f"{value:.4f}"


def target_text(target: tuple[str, float]) -> str:
    """``val_accuracy 97%``."""
    name, value = target
    percent = any(part in name for part in _PERCENT)
    return f"{name} {100 * value:g}%" if percent else f"{name} {value:g}"


def time_to_text(row: Row, target: tuple[str, float]) -> str:
    """The median time over the repeats that got there, and how many did if not all."""
    times = list(row.time_to(*target).values())
    reached = [seconds for seconds in times if seconds is not None]
    if not reached:
        return NOT_REACHED if times else ""
    some = "" if len(reached) == len(times) else f" ({len(reached)} of {len(times)})"
    return seconds_text(median(reached)) + some

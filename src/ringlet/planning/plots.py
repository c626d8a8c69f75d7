"""A plan as a picture: speed-up beside the ideal line, and what a step's time is spent on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringlet.planning.planner import Plan

PARTS = {
    "compute": ("compute", "#4c78a8"),
    "data": ("batches, figures", "#72b7b2"),
    "sharing": ("sharing the machine", "#9ecae9"),
    "update": ("adding up, updating", "#f2cf5b"),
    "stragglers": ("stragglers", "#b279a2"),
    "latency": ("network: latency", "#ff9d98"),
    "transfer": ("network: bytes", "#e45756"),
}
"""Parts of a step in the order in which they are stacked."""


def draw(path: Path, plan: Plan) -> None:
    """Write the picture; the ending of ``path`` says in which format."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    _speed_up(figure.add_subplot(1, 2, 1), plan)
    _steps(figure.add_subplot(1, 2, 2), plan)
    kind = "fixed global batch" if plan.goal.is_strong else "fixed local batch"
    figure.suptitle(f"{plan.scenario.workload.name}: plan for a {kind} of {_batch(plan):,}")
    figure.savefig(path, dpi=120)


def _batch(plan: Plan) -> int:
    return plan.goal.global_batch_size or plan.goal.local_batch_size or 1


def _speed_up(axes: Any, plan: Plan) -> None:
    counts = [found.num_workers for found in plan.forecasts]
    axes.plot(counts, counts, color="0.6", linestyle="--", label="ideal")
    axes.plot(counts, [found.speed_up for found in plan.forecasts], marker="o", ms=4, color="#4c78a8", label="plan")
    chosen = next(found for found in plan.forecasts if found.num_workers == plan.advice.num_workers)
    axes.plot(
        [chosen.num_workers],
        [chosen.speed_up],
        marker="o",
        ms=11,
        fillstyle="none",
        mew=1.8,
        linestyle="none",
        color="#e45756",
        label=f"recommended: {chosen.num_workers:,} ({chosen.efficiency:.0%} efficient)",
    )
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="times one worker", title="Speed-up")
    ticks = counts if len(counts) <= 8 else counts[::2]
    for axis, values in ((axes.set_xticks, ticks), (axes.set_yticks, ticks)):
        axis(values, [f"{value:,}" for value in values])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)


def _steps(axes: Any, plan: Plan) -> None:
    labels = [f"{found.num_workers:,}" for found in plan.forecasts]
    places = range(len(labels))
    floor = [0.0] * len(labels)
    parts = [asdict(found.parts) for found in plan.forecasts]
    highest = max(found.step_seconds for found in plan.forecasts)
    unit, factor = ("seconds", 1.0) if highest >= 1 else ("milliseconds", 1e3)
    for name, (text, colour) in PARTS.items():
        heights = [factor * entry[name] for entry in parts]
        if max(heights) > 0:
            axes.bar(places, heights, bottom=floor, color=colour, label=text, width=0.75)
            floor = [low + height for low, height in zip(floor, heights, strict=True)]
    axes.set_xticks(list(places), labels, rotation=45 if len(labels) > 8 else 0)
    axes.set(xlabel="workers", ylabel=unit, title="Time of a step", ylim=(0, 1.3 * factor * highest))
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    place = "upper right" if plan.goal.is_strong else "upper left"
    axes.legend(frameon=False, ncols=2, loc=place, fontsize=9)

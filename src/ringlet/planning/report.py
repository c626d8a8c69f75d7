"""A plan for people: the rows of its table, sentences, and a plot of speed-up and of what a step's time is spent on."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from ringlet.bench.plotting import COLOURS, PHASE_COLOURS, Plot, finish, ideal_style, line_style, make_figure
from ringlet.bench.quantities import seconds_text, size_text
from ringlet.planning.advice import CAUSES
from ringlet.planning.forecast import Forecast
from ringlet.planning.planner import CapacityPlan, named

COLUMNS = (
    *("workers", "machines", "batch", "memory / worker", "exchanged / step", "step", "epoch", "samples/s"),
    *("speed-up", "efficiency", "binds"),
)
BREAKDOWN = {
    "compute": ("compute", PHASE_COLOURS["compute"]),
    "data": ("batches, metrics", PHASE_COLOURS["data"]),
    "sharing": ("sharing the machine", "#8fb2ea"),
    "update": ("adding up, updating", COLOURS[3]),
    "stragglers": ("stragglers", PHASE_COLOURS["wait"]),
    "latency": ("network: latency", "#f0b08a"),
    "transfer": ("network: bytes", PHASE_COLOURS["exchange"]),
}
"""Parts of a step in the order in which they are stacked, with their colours."""


def rows(plan: CapacityPlan) -> list[list[object]]:
    """One row for each number of workers; the recommended one is marked."""
    return [_row(plan, found) for found in plan.forecasts]


def _row(plan: CapacityPlan, found: Forecast) -> list[object]:
    mark = " *" if found.num_workers == plan.advice.num_workers else ""
    return [
        f"{found.num_workers:,}{mark}",
        found.num_machines,
        f"{found.local_batch_size:,} of {found.global_batch_size:,}",
        size_text(found.memory.total),
        size_text(found.network_bytes + found.shared_bytes),
        seconds_text(found.step_seconds),
        "" if found.epoch_seconds is None else seconds_text(found.epoch_seconds),
        f"{found.samples_per_second:,.0f}",
        f"{found.speed_up:.2f}" if found.speed_up < 100 else f"{found.speed_up:,.0f}",
        f"{found.efficiency:.0%}",
        plan.binds(found),
    ]


def about(plan: CapacityPlan) -> dict[str, str]:
    """What the plan is for."""
    work, scenario, machine = plan.scenario.workload, plan.scenario, plan.scenario.machine
    links = scenario.network
    messages = f"{scenario.algorithm}, overlap {scenario.overlap}, compression {scenario.compression}"
    return {
        "network": f"{work.name}, {work.num_parameters:,} parameters ({size_text(work.parameter_bytes)}), "
        f"{work.training_flops / 1e6:,.1f} MFLOP a sample, optimizer state {size_text(work.optimizer_bytes)}",
        "machine": _machine_text(plan),
        "links": f"{seconds_text(links.between.latency)} and {8 * links.between.line_rate / 1e9:g} Gbit/s "
        f"({links.between.efficiency:.0%} for payload) between machines of {links.workers_per_machine} workers"
        + ("" if machine.is_measured else f", {links.inside.bandwidth / 1e9:.3g} GB/s inside"),
        "exchange": f"{named(scenario.strategy)}, {messages}",
    }


def _machine_text(plan: CapacityPlan) -> str:
    machine = plan.scenario.machine
    times = {
        count: seconds_text(machine.pass_seconds(count, machine.local_batch_size)) for count in sorted(machine.passes)
    }
    passes = ", ".join(f"{seconds} {_together(count)}" for count, seconds in times.items())
    if not machine.is_measured:
        return f"described: a pass of {machine.local_batch_size} samples in {times[1]}, ± {machine.variation:.1%}"
    return f"measured: a pass of {machine.local_batch_size} samples in {passes}, ± {machine.variation:.1%}"


def _together(count: int) -> str:
    return "by one worker alone" if count == 1 else f"by {count} at once"


def sentences(plan: CapacityPlan) -> list[str]:
    """The recommendation."""
    advice, larger = plan.advice, plan.larger_batch
    noun = "worker" if advice.num_workers == 1 else "workers"
    texts = [
        f"Recommended: {advice.num_workers:,} {noun} with a local batch of {advice.local_batch_size:,}: "
        f"{advice.reason}.",
        f"What binds: {CAUSES[advice.binds]}.",
    ]
    texts += _sureness(plan)
    if advice.largest_efficient not in (None, advice.num_workers):
        texts.append(
            f"The largest number with an efficiency of at least {plan.goal.min_efficiency:.0%}: "
            f"{advice.largest_efficient:,}."
        )
    if larger is not None:
        texts.append(
            f"With a local batch of {larger.local_batch_size:,} it would be {larger.num_workers:,} workers, if the "
            "network still learns as well."
        )
    return texts


RESTLESS = 0.1
"""From this change of the machine's speed on a plan says how sure it is."""


def _sureness(plan: CapacityPlan) -> list[str]:
    """The range of the recommendation, where turns of the measurement differed, and what that means."""
    machine, goal = plan.scenario.machine, plan.goal
    if machine.unrest <= RESTLESS:
        return []
    found = next(found for found in plan.forecasts if found.num_workers == plan.advice.num_workers)
    if found.num_workers == 1:
        found = next((other for other in plan.forecasts if other.num_workers > 1), found)
    low, high = found.speed_up_range
    texts = []
    if high > low:
        texts.append(
            f"Speed-up of {found.num_workers:,} workers: {found.speed_up:.2f}x, between {low:.2f}x and {high:.2f}x by "
            "single turns of the measurement."
        )
    least = goal.min_efficiency * found.num_workers
    doubt = ", and so is whether they are worth it" if low < least <= high else ""
    texts.append(
        f"How sure: the speed of this machine changed by ± {machine.unrest:.0%} while it was measured, so times are "
        f"uncertain by as much{doubt}. Measure again when nothing else runs, or for longer (--measure-seconds)."
    )
    return texts


def plot(plan: CapacityPlan) -> Plot:
    """Speed-up beside the ideal line, and the time of a step by what it is spent on."""
    kind = "fixed global batch" if plan.goal.is_strong else "fixed local batch"
    batch = plan.goal.global_batch_size or plan.goal.local_batch_size or 1
    title = f"{plan.scenario.workload.name}: plan for a {kind} of {batch:,}"
    return Plot("plan", title, partial(_draw, plan, title))


def _draw(plan: CapacityPlan, title: str, ink: str) -> Any:
    figure, (left, right) = make_figure(4.6, 2)
    _draw_speed_up(left, plan, ink)
    _draw_steps(right, plan)
    figure.suptitle(title)
    return figure


def _draw_speed_up(axes: Any, plan: CapacityPlan, ink: str) -> None:
    counts = [found.num_workers for found in plan.forecasts]
    axes.plot(counts, counts, **ideal_style(ink))
    axes.plot(counts, [found.speed_up for found in plan.forecasts], label="plan", **line_style(0))
    chosen = next(found for found in plan.forecasts if found.num_workers == plan.advice.num_workers)
    label = f"recommended: {chosen.num_workers:,} ({chosen.efficiency:.0%} efficient)"
    ring = {"marker": "o", "ms": 12, "fillstyle": "none", "mew": 1.8, "ls": "none", "color": COLOURS[4]}
    axes.plot([chosen.num_workers], [chosen.speed_up], label=label, **ring)
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="times one worker", title="Speed-up")
    ticks = counts if len(counts) <= 8 else counts[::2]
    for set_ticks in (axes.set_xticks, axes.set_yticks):
        set_ticks(ticks, [f"{value:,}" for value in ticks])
    axes.minorticks_off()
    finish(axes)


def _draw_steps(axes: Any, plan: CapacityPlan) -> None:
    labels = [f"{found.num_workers:,}" for found in plan.forecasts]
    floor = [0.0] * len(labels)
    steps = [asdict(found.breakdown) for found in plan.forecasts]
    highest = max(found.step_seconds for found in plan.forecasts)
    unit, factor = ("seconds", 1.0) if highest >= 1 else ("milliseconds", 1e3)
    for name, (text, colour) in BREAKDOWN.items():
        heights = [factor * step[name] for step in steps]
        if max(heights) > 0:
            axes.bar(range(len(labels)), heights, bottom=floor, color=colour, label=text, width=0.75)
            floor = [low + height for low, height in zip(floor, heights, strict=True)]
    axes.set_xticks(range(len(labels)), labels, rotation=45 if len(labels) > 8 else 0)
    axes.set(xlabel="workers", ylabel=unit, title="Time of a step", ylim=(0, 1.3 * factor * highest))
    finish(axes, grid="y", ncols=2, loc="upper right" if plan.goal.is_strong else "upper left")

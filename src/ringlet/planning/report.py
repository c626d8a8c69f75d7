"""A plan as texts: the rows of its table, and sentences."""

from __future__ import annotations

from ringlet.bench.quantities import seconds_text, size_text
from ringlet.planning.advice import CAUSES
from ringlet.planning.forecast import Forecast
from ringlet.planning.planner import Plan

COLUMNS = (
    "workers",
    "machines",
    "batch",
    "memory / worker",
    "exchanged / step",
    "step",
    "epoch",
    "samples/s",
    "speed-up",
    "efficiency",
    "binds",
)


def rows(plan: Plan) -> list[list[object]]:
    """One row for each number of workers; the recommended one is marked."""
    return [_row(plan, found) for found in plan.forecasts]


def _row(plan: Plan, found: Forecast) -> list[object]:
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


def about(plan: Plan) -> dict[str, str]:
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
        "exchange": f"{plan.request.config.strategy}, {messages}",
    }


def _machine_text(plan: Plan) -> str:
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


def sentences(plan: Plan) -> list[str]:
    """The recommendation."""
    advice, larger = plan.advice, plan.larger_batch
    noun = "worker" if advice.num_workers == 1 else "workers"
    texts = [
        f"Recommended: {advice.num_workers:,} {noun} with a local batch of {advice.local_batch_size:,}: "
        f"{advice.reason}.",
        f"What binds: {CAUSES[advice.binds]}.",
    ]
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

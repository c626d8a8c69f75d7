"""Where a training step goes: microseconds of every kernel call within whole steps of the native engine.

    python -m benchmarks.step_calls [--model simplecnn] [--steps 300] [--threads 1]

Calls run in the order of the step, each timed by itself, so that caches hold what they hold in training; given is the
median over steps. A call is named by its kernel and the shapes of its first arrays; the same one in several places of a
network is added up. "whole step" is a step as training takes it, with Adam and all that Python does around the calls.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import cases
from benchmarks.common import parser, print_machine, report, sgemm_gflops, use_threads
from benchmarks.steps import ringlet_step
from ringlet.bench.timing import Variant, take_turns

COLUMNS = ("call", "shapes", "algorithm", "times", "us", "share")


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--model", default="simplecnn", choices=sorted(cases.CASES), help="default: %(default)s")
    options.add_argument("--batch", type=int, help="samples (default: the usual batch)")
    options.add_argument("--steps", type=int, default=300, help="steps that are timed (default: %(default)s)")
    given = options.parse_args()
    use_threads(given.threads)
    case = cases.make(given.model, given.batch)
    print_machine(network=given.model, batch=case.batch_size, sgemm=f"{sgemm_gflops(given.threads):.0f} GFLOP/s")
    seconds = call_seconds(case, given.steps, given.threads)
    step = Variant("whole step", ringlet_step(case, given.threads))
    take_turns([step], given.rounds)
    calls = sum(value for values in seconds.values() for value in values)
    rows = [
        (*key, len(values), f"{1e6 * sum(values):.0f}", f"{sum(values) / calls:.0%}") for key, values in seconds.items()
    ]
    rows += [("all calls", "", "", "", f"{1e6 * calls:.0f}", "100%")]
    rows += [("whole step", "", "", "", f"{1e6 * step.median:.0f}", f"{step.median / calls:.0%}")]
    part = "" if given.model == "simplecnn" else given.model.replace("@", "_")
    report(given, "step_calls", COLUMNS, rows, part=part, num_keys=3, step=step.to_dict())


def call_seconds(case: cases.Case, num_steps: int, num_threads: int) -> dict[tuple[str, str, str], list[float]]:
    """Median seconds of every call of a step, by kernel, shapes and algorithm, in the order of their first use."""
    from ringlet.engines.native import NativeReplica
    from ringlet.engines.native.binding import bind

    replica = NativeReplica(case.spec, loss=case.loss, local_batch_size=case.batch_size, threads=num_threads)
    replica.loss_and_gradients(*case.batch())  # leaves its samples in the context that calls read
    calls = replica.plan.training_calls
    actions = [bind(replica.kernels, replica.plan.context, [call]) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(num_steps):
        for taken, (action,) in zip(times, actions, strict=True):
            start = perf_counter()
            action()
            taken.append(perf_counter() - start)
    found: dict[tuple[str, str, str], list[float]] = {}
    for (kernel, arrays, options), taken in zip(calls, times, strict=True):
        key = kernel, shapes_text(arrays), str(options.get("algorithm", ""))
        found.setdefault(key, []).append(median(taken))
    return found


def shapes_text(arrays: list[Any]) -> str:
    """The first two shapes: what a call reads and works with."""
    shapes = [array.shape for array in arrays if hasattr(array, "shape")][:2]
    return ", ".join("x".join(map(str, shape)) for shape in shapes)


if __name__ == "__main__":
    main()

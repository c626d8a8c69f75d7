"""What more threads bring: one training step of vgg16_bn (CIFAR, batch 32) with 1 and with 2 threads.

    python -m benchmarks.thread_scaling [--threads 4] [--model resnet18]

"range" is that of the rounds, each number of threads against the other in the same round.
"""

from __future__ import annotations

from functools import partial

from benchmarks.cases import CASES, Case
from benchmarks.common import parser, print_machine, report, use_threads
from benchmarks.steps import ringlet_step, torch_step
from ringlet.bench.timing import Variant, estimate, take_turns


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_threads=2)
    options.add_argument("--model", default="vgg16_bn", choices=sorted(CASES))
    given = options.parse_args()
    counts = [1, given.threads]
    print_machine(network=given.model)
    ours, theirs = _variants(CASES[given.model](), counts)
    take_turns([*ours, *theirs], given.rounds)
    rows = []
    for name, (one, many) in (("Ringlet", ours), ("PyTorch", theirs)):
        gain = estimate([alone / together for alone, together in zip(one.seconds, many.seconds, strict=True)])
        times = (f"{1000 * entry.median:.1f}" for entry in (one, many))
        rows.append((given.model, name, *times, f"{gain.median:.2f} x", f"{gain.low:.2f} to {gain.high:.2f}"))
    columns = ("network", "engine", "1 thread ms", f"{given.threads} threads ms", "gain", "range")
    variants = [entry.to_dict() for entry in (*ours, *theirs)]
    report(given, "thread_scaling", columns, rows, num_keys=2, variants=variants)


def _variants(case: Case, counts: list[int]) -> tuple[list[Variant], list[Variant]]:
    """Each number of threads has a replica of its own: algorithms are chosen per number of threads."""
    ours, theirs = [], []
    for count in counts:
        use_threads(count)
        ours.append(Variant(f"Ringlet {count}", ringlet_step(case, count), partial(use_threads, count)))
        step = torch_step(case, channels_last=False)
        theirs.append(Variant(f"PyTorch {count}", step, partial(use_threads, count)))
    return ours, theirs


if __name__ == "__main__":
    main()

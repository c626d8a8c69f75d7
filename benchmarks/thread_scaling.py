"""What more threads bring: one training step of vgg16_bn (CIFAR, batch 32) with 1 and with 2 threads.

python -m benchmarks.thread_scaling [--threads 4] [--model resnet18]
"""

from __future__ import annotations

from functools import partial

from benchmarks.common import Competitor, parser, print_machine, print_table, race, save, use_threads
from benchmarks.steps import CASES, Case, ringlet_step, torch_step


def main() -> None:
    """Measure and print."""
    options = parser(__doc__, num_threads=2)
    options.add_argument("--model", default="vgg16_bn", choices=sorted(CASES))
    given = options.parse_args()
    counts = [1, given.threads]
    print_machine(network=given.model)
    ours, theirs = _competitors(CASES[given.model](), counts)
    race([*ours, *theirs], given.rounds)
    rows = []
    for name, (one, many) in (("Ringlet", ours), ("PyTorch (contiguous)", theirs)):
        rows.append(
            (name, *(f"{1000 * entry.median:.1f}" for entry in (one, many)), f"{one.median / many.median:.2f} x")
        )
    print_table(("engine", "1 thread ms", f"{given.threads} threads ms", "gain"), rows)
    results = [entry.figures() for entry in (*ours, *theirs)]
    save(given.json, "thread_scaling", network=given.model, threads=counts, results=results)


def _competitors(case: Case, counts: list[int]) -> tuple[list[Competitor], list[Competitor]]:
    """Each number of threads has a replica of its own: algorithms are chosen per number of threads."""
    ours, theirs = [], []
    for count in counts:
        use_threads(count)
        ours.append(Competitor(f"Ringlet {count}", ringlet_step(case, count), partial(use_threads, count)))
        step = torch_step(case, channels_last=False)
        theirs.append(Competitor(f"PyTorch {count}", step, partial(use_threads, count)))
    return ours, theirs


if __name__ == "__main__":
    main()

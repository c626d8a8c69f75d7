"""Test accuracy in float32 and in bfloat16, for several seeds.

    python -m benchmarks.precision_accuracy [--model simplecnn] [--dataset mnist] [--path PATH] [--epochs 3]

The goal: the means of the two differ by no more than the seeds of either do. Every seed that was run is printed.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from benchmarks.common import fit, parser, print_machine, report

DTYPES = ("float32", "bfloat16")
COLUMNS = ("dtype", "seed", "seconds", "test")


def main() -> None:
    """Train and print."""
    options = parser(__doc__, num_rounds=3)
    options.add_argument("--model", default="simplecnn", help="network of the zoo (default: %(default)s)")
    options.add_argument("--dataset", default="mnist", help="data set (default: %(default)s)")
    options.add_argument("--path", help="its folder (default: the cache)")
    options.add_argument("--num-samples", type=int, help="train on so many samples only")
    options.add_argument("--epochs", type=int, default=3, help="epochs (default: %(default)s)")
    options.add_argument("--dtypes", default=",".join(DTYPES), help="precisions (default: %(default)s)")
    options.add_argument("--first-seed", type=int, default=0, help="the seed of the first round (default: %(default)s)")
    given = options.parse_args()
    print_machine(network=given.model, dataset=given.dataset, epochs=given.epochs, threads=given.threads)
    seeds = range(given.first_seed, given.first_seed + given.rounds)
    results = [train(given, dtype, seed) for seed in seeds for dtype in given.dtypes.split(",")]
    rows = [(own["dtype"], own["seed"], f"{own['seconds']:.1f}", f"{own['test']:.2%}") for own in results]
    for dtype in given.dtypes.split(","):
        tests = [own["test"] for own in results if own["dtype"] == dtype]
        rows.append((dtype, "mean", "", f"{mean(tests):.2%} ({min(tests):.2%} to {max(tests):.2%})"))
    report(given, "precision_accuracy", COLUMNS, rows, results=results)


def train(given: Any, dtype: str, seed: int) -> dict[str, Any]:
    """Train and evaluate once."""
    import ringlet

    trainer = ringlet.Trainer(
        given.model,
        given.dataset,
        dataset_path=given.path,
        num_samples=given.num_samples,
        seed=seed,
        num_epochs=given.epochs,
        threads=given.threads,
        dtype=dtype,
    )
    _, times = fit(trainer)
    return {"dtype": dtype, "seed": seed, **times, "test": trainer.evaluate()["accuracy"]}


if __name__ == "__main__":
    main()

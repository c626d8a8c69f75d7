"""Test accuracy of simplecnn on real MNIST after 10 epochs, for several seeds, with default options.

    python -m benchmarks.mnist_accuracy [PATH_OF_MNIST] [--workers 2]

Without a path the data set is taken from the cache (`ringlet datasets fetch mnist`). Every seed that was run is
printed; the goal, at least 98.2 %, is for each of them, not for the best.
"""

from __future__ import annotations

from benchmarks.common import fit, parser, print_machine, report

GOAL = 0.982
COLUMNS = ("seed", "seconds", "samples/s", "validation", "test", "goal")


def main() -> None:
    """Train and print."""
    options = parser(__doc__, num_rounds=3)
    options.add_argument("path", nargs="?", help="folder of the idx files")
    options.add_argument("--workers", type=int, default=1, help="workers, each with the local batch (default: 1)")
    options.add_argument("--epochs", type=int, default=10, help="epochs (default: %(default)s)")
    given = options.parse_args()
    print_machine(network="simplecnn", epochs=given.epochs, threads=given.threads, workers=given.workers)
    import ringlet

    arguments = [(given.path, seed, given.epochs, given.threads) for seed in range(given.rounds)]
    results = [ringlet.run(train, *own, num_workers=given.workers)[0] for own in arguments]
    report(given, "mnist_accuracy", COLUMNS, [_row(**result) for result in results], results=results)


def train(path: str | None, seed: int, num_epochs: int, num_threads: int) -> dict[str, float]:
    """Train and evaluate once; every worker calls it."""
    import ringlet

    trainer = ringlet.Trainer(
        "simplecnn", "mnist", dataset_path=path, seed=seed, num_epochs=num_epochs, threads=num_threads
    )
    history, times = fit(trainer)
    test = trainer.evaluate()["accuracy"]
    return {"seed": seed, **times, "validation": history["val_accuracy"][-1], "test": test}


def _row(seed: float, seconds: float, rate: float, validation: float, test: float) -> tuple[object, ...]:
    reached = "reached" if test >= GOAL else "missed"
    return seed, f"{seconds:.1f}", f"{rate:,.0f}", f"{validation:.2%}", f"{test:.2%}", reached


if __name__ == "__main__":
    main()

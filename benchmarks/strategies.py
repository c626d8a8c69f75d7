"""Test accuracy on real MNIST of every way in which workers can agree, on 2 and 4 workers, and its speed.

    python -m benchmarks.strategies [PATH_OF_MNIST] [--workers 2 4] [--epochs 3] [--strategies sync async]

Without a path the data set is taken from the cache (`ringlet datasets fetch mnist`). All strategies train simplecnn
with Adam and the default learning rate, 64 samples for each worker's pass, one thread for each worker. The goal, at
least 97.5 %, is for each row. More workers than cores share them: compare times of one number of workers only.
"""

from __future__ import annotations

from typing import Any

from benchmarks.common import fit, parser, print_machine, report

GOAL = 0.975
BLOCK_MOMENTA = ("bmuf:10", "bmuf:10,classical", "bmuf:10,classical,block_momentum=0.5")
STRATEGIES = ("sync", "average:10", *BLOCK_MOMENTA, "async", "softsync:1", "softsync:2")
COLUMNS = ("strategy", "workers", "seconds", "samples/s", "staleness", "most", "validation", "test", "goal")


def main() -> None:
    """Train and print."""
    options = parser(__doc__, num_rounds=1)
    options.add_argument("path", nargs="?", help="folder of the idx files")
    options.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="numbers of workers (default: 2 4)")
    options.add_argument("--epochs", type=int, default=3, help="epochs (default: %(default)s)")
    options.add_argument("--strategies", nargs="+", default=STRATEGIES, help="of --strategy (default: all)")
    given = options.parse_args()
    print_machine(network="simplecnn", epochs=given.epochs, threads=given.threads)
    import ringlet

    results = []
    for num_workers in given.workers:
        for strategy in given.strategies:
            for seed in range(given.rounds):
                arguments = given.path, strategy, seed, given.epochs, given.threads
                results.append(ringlet.run(train, *arguments, num_workers=num_workers)[0])
    report(given, "strategies", COLUMNS, [_row(result) for result in results], num_keys=2, results=results)


def train(path: str | None, strategy: str, seed: int, num_epochs: int, num_threads: int) -> dict[str, Any]:
    """Train and evaluate once; every worker calls it."""
    import ringlet

    ages: list[Any] = []

    def note(event: Any) -> None:
        if type(event).__name__ == "StalenessMeasured":
            ages.append(event)

    trainer = ringlet.Trainer(
        "simplecnn",
        "mnist",
        dataset_path=path,
        strategy=strategy,
        seed=seed,
        num_epochs=num_epochs,
        threads=num_threads,
        callbacks=[note],
    )
    history, times = fit(trainer)
    return {
        "strategy": strategy,
        "workers": trainer.comm.size,
        "seed": seed,
        **times,
        "staleness": sum(age.mean for age in ages) / len(ages) if ages else None,
        "most": max(age.max for age in ages) if ages else None,
        "histogram": [list(age.histogram) for age in ages],
        "validation": history["val_accuracy"][-1],
        "test": trainer.evaluate()["accuracy"],
    }


def _row(result: dict[str, Any]) -> tuple[object, ...]:
    return (
        result["strategy"],
        result["workers"],
        f"{result['seconds']:.1f}",
        f"{result['rate']:,.0f}",
        "" if result["staleness"] is None else f"{result['staleness']:.2f}",
        "" if result["most"] is None else result["most"],
        f"{result['validation']:.2%}",
        f"{result['test']:.2%}",
        "reached" if result["test"] >= GOAL else "missed",
    )


if __name__ == "__main__":
    main()

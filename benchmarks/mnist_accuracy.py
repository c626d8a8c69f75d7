"""Test accuracy of simplecnn on real MNIST after 10 epochs, for several seeds, with default options.

    python benchmarks/mnist_accuracy.py PATH_OF_MNIST [NUM_SEEDS] [NUM_EPOCHS]

Every seed that was run is printed; the goal (at least 98.2 %) is for each of them, not for the best.
"""

from __future__ import annotations

import sys
import time

import ringlet

GOAL = 0.982


def main() -> None:
    path = sys.argv[1]
    num_seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    num_epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    print(f"{'seed':>4}  {'kernels':>9}  {'seconds':>8}  {'samples/s':>10}  {'val_acc':>8}  {'test_acc':>8}  goal")
    for seed in range(num_seeds):
        trainer = ringlet.Trainer("simplecnn", "mnist", dataset_path=path, seed=seed, num_epochs=num_epochs)
        start = time.perf_counter()
        history = trainer.fit()
        seconds = time.perf_counter() - start
        accuracy = trainer.evaluate()["accuracy"]
        rate = num_epochs * len(trainer.dataset.train) / seconds
        reached = "reached" if accuracy >= GOAL else "missed"
        name, validation = trainer.replica.kernels.name, history["val_accuracy"][-1]
        print(
            f"{seed:>4}  {name:>9}  {seconds:>8.1f}  {rate:>10,.0f}  {validation:>8.2%}  {accuracy:>8.2%}  {reached}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Validation dice and IoU of a narrow U-Net on masks, for several seeds.

    python -m benchmarks.mask_quality [FOLDER] [--workers 2] [--epochs 30] [--rounds 3]

FOLDER holds images with masks in one of the layouts of docs/segmentation.md, with a `val` folder of objects that are
not in `train`; without it the built-in shapes are learned. Every seed that was run is printed; the goal, a dice of at
least 0.95, is for each of them, not for the best.
"""

from __future__ import annotations

from typing import Any

from benchmarks.common import fit, parser, print_machine, report

GOAL = 0.95
COLUMNS = ("seed", "seconds", "images/s", "dice", "IoU", "right pixels", "goal")
OPTIONS: dict[str, Any] = {
    "model": "unet",
    "model_options": {"momentum": 0.9},
    "learning_rate": 0.005,
    "lr_schedulers": ("cosine",),
    "metrics": ("dice", "iou", "accuracy"),
}
AUGMENTATION: dict[str, Any] = {
    "flip_images": True,
    "rotate_images": True,
    "shift_images": True,
    "shift_images_size": 12,
    "jitter_images": True,
    "jitter_images_strength": 0.8,
    "jitter_images_prob": 0.8,
}


def main() -> None:
    """Train and print."""
    options = parser(__doc__, num_rounds=3)
    options.add_argument("path", nargs="?", help="folder of images and masks (default: the built-in shapes)")
    options.add_argument("--workers", type=int, default=2, help="workers, each with 8 images at a time (default: 2)")
    options.add_argument("--epochs", type=int, default=30, help="epochs (default: %(default)s)")
    options.add_argument("--size", type=int, default=128, help="height and width (default: %(default)s)")
    given = options.parse_args()
    print_machine(network="unet", epochs=given.epochs, threads=given.threads, workers=given.workers)
    import ringlet

    chosen = {"dataset": f"folder:{given.path}", **AUGMENTATION} if given.path else {"dataset": "shapes"}
    chosen |= {"image_size": given.size, "num_epochs": given.epochs, "threads": given.threads}
    seeds = range(given.rounds)
    results = [ringlet.run(train, seed, OPTIONS | chosen, num_workers=given.workers)[0] for seed in seeds]
    report(given, "mask_quality", COLUMNS, [_row(**result) for result in results], results=results)


def train(seed: int, options: dict[str, Any]) -> dict[str, float]:
    """Train once; every worker calls it."""
    import ringlet

    history, times = fit(ringlet.Trainer(seed=seed, **options))
    return {"seed": seed, **times, **{name: history[f"val_{name}"][-1] for name in ("dice", "iou", "accuracy")}}


def _row(seed: float, seconds: float, rate: float, dice: float, iou: float, accuracy: float) -> tuple[object, ...]:
    reached = "reached" if dice >= GOAL else "missed"
    return seed, f"{seconds:.1f}", f"{rate:,.0f}", f"{dice:.4f}", f"{iou:.4f}", f"{accuracy:.2%}", reached


if __name__ == "__main__":
    main()

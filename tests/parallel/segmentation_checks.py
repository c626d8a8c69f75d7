"""What the ranks of a segmentation test do: learn shapes, and say what came out of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ringlet import RunConfig
from ringlet.comm.contract import Communicator
from ringlet.training.session import Session

OPTIONS: dict[str, Any] = {
    "model": "unet",
    "model_options": {"levels": 2, "width": 4},
    "dataset": "shapes",
    "image_size": 16,
    "num_samples": 50,
    "validation_split": 0.26,
    "num_epochs": 2,
    "global_batch_size": 12,
    "metrics": ("dice", "iou", "accuracy"),
    "flip_images": True,
    "shift_images": True,
    "rotate_images": True,
    "jitter_images": True,
    "num_pictures": 5,
    "seed": 3,
}


def learn(comm: Communicator, folder: str, **changes: Any) -> dict[str, Any]:
    """Figures of every epoch and of the test data, and a digest of every picture."""
    session = Session.open(RunConfig(**OPTIONS | {"run_dir": folder} | changes), comm)
    result = session.run()
    comm.barrier()
    return {"epochs": result.epochs, "test": result.test, "pictures": _digests(Path(folder) / "pictures")}


def evaluate(comm: Communicator, **changes: Any) -> dict[str, Any]:
    """Figures of the network before any training, when it is the same on any number of ranks."""
    return Session.open(RunConfig(**OPTIONS | {"evaluate_only": True} | changes), comm).run().test or {}


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}

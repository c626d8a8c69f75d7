"""A tiny network's checkpoints, and ways to see whether two of them are the same to the bit."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ringlet.checkpoint import Checkpoint
from ringlet.models.builder import batch_norm, build, conv2d, dense, flatten, image_input, relu, softmax
from ringlet.models.spec import ModelSpec


def make_spec(num_classes: int = 4) -> ModelSpec:
    x = relu(batch_norm(conv2d(image_input((2, 5, 5)), 3, kernel=3, bias=False)))
    return build("tiny", softmax(dense(flatten(x), num_classes)))


def make_checkpoint(
    step: int, *, spec: ModelSpec | None = None, optimizer: tuple[str, ...] = ("velocity",)
) -> Checkpoint:
    """A checkpoint whose every number follows from ``step``."""
    spec = make_spec() if spec is None else spec
    draw = np.random.default_rng(step)
    return Checkpoint(
        step=step,
        spec=spec,
        tensors={
            info.name: draw.standard_normal(info.shape).astype(np.float32) for info in (*spec.parameters, *spec.state)
        },
        metadata={"labels": '["a","b"]', "loss": "categorical_cross_entropy"},
        optimizer={name: draw.standard_normal(spec.num_parameters).astype(np.float32) for name in optimizer},
        training={"progress": {"num_epochs": step // 10}, "best_step": 10, "loss": draw.random()},
        history=[{"loss": draw.random(), "val_loss": float("nan")} for _ in range(step % 3)],
        config={"model": "tiny", "learning_rate": 0.1, "widths": [1, 2]},
        versions={"ringlet": "0"},
    )


def content(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything in a checkpoint as plain comparable values; arrays as their bits."""
    bits = {
        kind: {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}
        for kind, arrays in (("tensors", checkpoint.tensors), ("optimizer", checkpoint.optimizer))
    }
    names = ("step", "training", "config", "versions")
    others = {name: getattr(checkpoint, name) for name in names}
    others["history"] = [{name: struct.pack("d", value) for name, value in row.items()} for row in checkpoint.history]
    return {**bits, **others, "metadata": dict(checkpoint.metadata), "spec": checkpoint.spec.to_json()}

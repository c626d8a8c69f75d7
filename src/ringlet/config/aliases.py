"""Other names of options: the flat ones of version 0.1 and those of PyDTNN. They work wherever an option is given.

Options of schedules go by ``<schedule>_<option>`` and those of optimizers by their bare name as well; these two rules
need no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Alias(NamedTuple):
    """The path of an option under another name."""

    path: tuple[str, ...]
    values: Mapping[Any, Any] | None = None
    """What values stand for; those that are not in it mean nothing. None: themselves."""


def _same(section: str, *names: str) -> dict[str, Alias]:
    return {name: Alias((section, name)) for name in names}


def _transform(name: str, **options: str) -> dict[str, Alias]:
    """``flip_images`` turns a transform on or off, ``flip_images_prob`` and the like are its options."""
    found = {f"{name}_images": Alias(("augmentation", name))}
    return found | {f"{name}_images_{short}": Alias(("augmentation", name, own)) for short, own in options.items()}


ALIASES: dict[str, Alias] = {
    **_same("model", "input_shape", "num_classes"),
    "weights_and_bias_filename": Alias(("model", "weights")),
    "model_options": Alias(("model", "options")),
    **{f"dataset_{name}": Alias(("dataset", name)) for name in ("path", "train_path", "test_path")},
    "use_synthetic_data": Alias(("dataset", "synthetic")),
    **_same("dataset", "num_samples", "image_size", "validation_split", "test_as_validation"),
    **_transform("flip", prob="probability"),
    **_transform("crop", size="size", prob="probability"),
    **_transform("shift", size="size", prob="probability"),
    **_transform("rotate", degrees="degrees", prob="probability"),
    **_transform("jitter", strength="strength", prob="probability"),
    **_same("training", "num_epochs", "steps_per_epoch", "local_batch_size", "global_batch_size", "metrics", "dtype"),
    **_same("training", "seed", "clip_value", "clip_norm", "learning_rate_scaling", "evaluate", "evaluate_only"),
    "batch_size": Alias(("training", "local_batch_size")),
    "loss_func": Alias(("training", "loss")),
    "decay_rate": Alias(("optimizer", "rho")),
    "lr_schedulers": Alias(("schedule",)),
    **_same("strategy", "overlap", "compression"),
    "blocking_mpi": Alias(("strategy", "overlap"), {True: "off"}),
    "non_blocking_mpi": Alias(("strategy", "overlap"), {True: "on"}),
    **_same("workers", "shards", "accumulate", "partition", "parallel"),
    **_same("engine", "device", "threads", "kernels", "exact"),
    "checkpoint_every": Alias(("checkpoint", "every")),
    "checkpoint_optimizer": Alias(("checkpoint", "optimizer")),
    **_same("checkpoint", "keep", "resume", "break_lock"),
    **_same("guards", "on_nan", "digest_every", "stall_seconds"),
    "log": Alias(("trackers",)),
    **_same("output", "run_dir", "history_file", "timeline", "profile", "num_pictures"),
}
"""Every other name with the path of its option."""

WITHOUT_EFFECT: dict[str, tuple[type, Any, str]] = {
    "shared_storage": (bool, False, "no effect: workers always read only their own samples"),
    "tensor_format": (str, "AUTO", "no effect: the layout has samples innermost"),
    "enable_fused_bn_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_bn": (bool, False, "no effect: the plan decides what to fuse"),
    "enable_fused_conv_bn_relu": (bool, False, "no effect: the plan decides what to fuse"),
    "tracing": (bool, False, "no effect: events.ndjson holds the metrics of every step"),
    "tracer_output": (str, None, "no effect, as tracing"),
    "enable_gpu": (bool, False, "no effect: give engine = torch, which takes GPUs"),
}
"""Options that are accepted and change nothing, with type, default and reason; a run that sets one says so."""

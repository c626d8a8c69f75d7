"""What metrics are called and which direction is better: shared by schedules here and by ``training.metrics``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from ringlet.errors import ConfigError, UnknownNameError, UsageError

METRIC_NAMES = ("accuracy", "top5_accuracy", "hinge", "mse", "mae", "dice", "iou")
"""The metrics that Ringlet computes, by their own names."""

METRIC_ALIASES = {
    "categorical_accuracy": "accuracy",
    "binary_accuracy": "accuracy",
    "top5": "top5_accuracy",
    "categorical_hinge": "hinge",
    "categorical_mse": "mse",
    "categorical_mae": "mae",
    "regression_mse": "mse",
    "regression_mae": "mae",
    "pixel_accuracy": "accuracy",
    "dice_coef": "dice",
    "dice_coefficient": "dice",
    "jaccard": "iou",
    "mean_iou": "iou",
}
"""Other names of the same metrics."""

LOSS_NAMES = ("categorical_cross_entropy", "binary_cross_entropy", "dice", "bce_dice", "mse", "mae")
"""Losses; what is minimised is always reported as ``loss``, whatever its function."""

LOSS_ALIASES = {
    "bce": "binary_cross_entropy",
    "dice_loss": "dice",
    "dice_coef_loss": "dice",
    "bce_dice_loss": "bce_dice",
}
"""Other names of the same losses; none of them is a metric too."""

_PREFIXES = ("val_", "test_", "train_")
_MAXIMISED = ("accuracy", "top5", "dice", "iou")


def split_prefix(name: str) -> tuple[str, str]:
    """``val_accuracy`` as (``val_``, ``accuracy``); the prefix may be empty."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return prefix, name[len(prefix) :]


def is_maximised(name: str) -> bool:
    """Whether more is better: for accuracies, dice and IoU; everything else, losses included, should become small."""
    _, bare = split_prefix(name.lower())
    if bare in LOSS_NAMES and bare not in METRIC_NAMES:
        return False
    return not bare.endswith("loss") and any(word in bare.split("_") for word in _MAXIMISED)


def resolve(name: str | None, available: Collection[str]) -> str:
    """The key in ``available`` that ``name`` means.

    The name itself, another name of the same metric, or for the name of a loss function the loss. Without a name: the
    validation loss if there is one, else the training loss. Anything else is an error: watching some other metric in
    silence is worse than none.
    """
    for candidate in _candidates(name):
        if candidate in available:
            return candidate
    wanted = "the default metrics val_loss and loss are" if name is None else f"metric '{name}' is"
    listing = ", ".join(sorted(available)) or "none"
    lacks_validation = str(name).startswith("val_") and not any(key.startswith("val_") for key in available)
    hint = (
        ""
        if not lacks_validation
        else " There is no validation data in this run: give some, or watch a training figure."
    )
    raise ConfigError(f"{wanted} not reported by this run. Available: {listing}.{hint}")


def _candidates(name: str | None) -> list[str]:
    if name is None:
        return ["val_loss", "loss"]
    prefix, bare = split_prefix(name.lower())
    candidates = [name, prefix + bare, prefix + METRIC_ALIASES.get(bare, bare)]
    candidates += [prefix + alias for alias, own in METRIC_ALIASES.items() if own == METRIC_ALIASES.get(bare, bare)]
    if (bare in LOSS_ALIASES or bare.removesuffix("_loss") in LOSS_NAMES) and not is_maximised(bare):
        candidates.append(f"{prefix}loss")
    return candidates


@cache
def canonical_name(name: str) -> str:
    """The own name of a metric: ``categorical_accuracy`` (in any case) is ``accuracy``."""
    key = METRIC_ALIASES.get(name.strip().lower(), name.strip().lower())
    if key in METRIC_NAMES:
        return key
    if key in LOSS_NAMES or key in LOSS_ALIASES:
        raise UsageError(
            f"'{name}' is a loss, not a metric: the loss is always reported. Metrics: {', '.join(METRIC_NAMES)}"
        )
    raise UnknownNameError("metric", name, METRIC_NAMES)


def split_losses(functions: str | Iterable[str]) -> tuple[str | None, list[str]]:
    """Take ``categorical_accuracy,categorical_cross_entropy`` apart: (the loss or None, the metrics' own names).

    What can only be a loss is the loss; without one, the last name that can be both (``mse``, ``mae``, ``dice``).
    """
    parts = functions.split(",") if isinstance(functions, str) else functions
    given = [name.strip().lower() for name in parts if name.strip()]
    only_losses = [name for name in given if name in LOSS_ALIASES or (name in LOSS_NAMES and name not in METRIC_NAMES)]
    losses = only_losses or [name for name in given if name in LOSS_NAMES][-1:]
    if len(losses) > 1:
        raise UsageError(f"one loss can be minimised, but {len(losses)} are given: {', '.join(losses)}")
    unknown = [name for name in given if name not in LOSS_NAMES and METRIC_ALIASES.get(name, name) not in METRIC_NAMES]
    if not losses and unknown:
        raise UnknownNameError("loss", unknown[-1], LOSS_NAMES)
    metrics = list(dict.fromkeys(canonical_name(name) for name in given if name not in losses))
    return (LOSS_ALIASES.get(losses[0], losses[0]) if losses else None), metrics

"""What metrics are called and which direction is better: shared by schedules here and by ``training.metrics``."""

from __future__ import annotations

from collections.abc import Collection

from ringlet.errors import ConfigError

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
    validation loss if there is one, else the training loss. Anything else is an error: watching some other figure in
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

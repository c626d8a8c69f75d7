"""What metrics are called and which direction is better: shared by schedules here, by configurations and by studies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ringlet.component import Registry, key
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.losses import LOSSES
from ringlet.metrics import METRICS

_PREFIXES = ("val_", "test_", "train_")
_MAXIMISED = ("accuracy", "top5", "dice", "iou", "precision", "recall", "f1", "r2", "auc")
"""Words in the names of metrics that no component has, such as those of functions."""


def split_prefix(name: str) -> tuple[str, str]:
    """``val_accuracy`` as (``val_``, ``accuracy``); the prefix may be empty."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    return prefix, name[len(prefix) :]


def is_maximised(name: str) -> bool:
    """Whether more is better: as the metric says; of functions by the words of their names. Losses become small."""
    _, bare = split_prefix(name.lower())
    found = _own_name(METRICS, bare)
    if found is not None:
        return METRICS.find(found).higher_is_better
    if _own_name(LOSSES, bare) is not None:
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
    candidates, own = [name, prefix + bare], _own_name(METRICS, bare)
    if own is not None:
        candidates += [prefix + other for other in (own, *METRICS.find(own).presets)]
    is_loss = any(_own_name(LOSSES, text) is not None for text in (bare, bare.removesuffix("_loss")))
    if is_loss and not is_maximised(bare):
        candidates.append(f"{prefix}loss")
    return candidates


def _own_name(registry: Registry[Any], name: str) -> str | None:
    """The own name of a component by any of its names; None if it is not built in or defined by this program."""
    wanted = key(name)
    for entry in registry.entries():
        if wanted in (key(entry.name), *map(key, entry.presets)):
            return str(entry.name)
    return None


def canonical_name(name: str) -> str:
    """The own name of a metric: ``categorical_accuracy`` (in any case) is ``accuracy``."""
    if _own_name(METRICS, name) is None and _own_name(LOSSES, name) is not None:
        raise UsageError(
            f"'{name}' is a loss, not a metric: the loss is always reported. Metrics: {', '.join(METRICS.names())}"
        )
    return METRICS.find(name).name


def split_losses(functions: str | Iterable[str]) -> tuple[str | None, list[str]]:
    """Take ``categorical_accuracy,categorical_cross_entropy`` apart: (the loss or None, the metrics' own names).

    What can only be a loss is the loss; without one, the last name that can be both (``mse``, ``mae``, ``dice``).
    """
    parts = functions.split(",") if isinstance(functions, str) else functions
    given = [name.strip().lower() for name in parts if name.strip()]
    if len(given) == 1 and _own_name(METRICS, given[0]) is None:
        return LOSSES.find(given[0]).name, []  # of another package, perhaps
    both = [name for name in given if _own_name(LOSSES, name) is not None]
    losses = [name for name in both if _own_name(METRICS, name) is None] or both[-1:]
    if len(losses) > 1:
        raise UsageError(f"one loss can be minimised, but {len(losses)} are given: {', '.join(losses)}")
    unknown = [name for name in given if name not in both and _own_name(METRICS, name) is None]
    if not losses and unknown:
        raise UnknownNameError("loss", unknown[-1], LOSSES.names())
    metrics = list(dict.fromkeys(canonical_name(name) for name in given if name not in losses))
    return (_own_name(LOSSES, losses[0]) if losses else None), metrics

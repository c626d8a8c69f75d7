"""Metrics as people read them: short names, shares in per cent, lines that break between values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHORT = {
    "loss": "loss",
    "categorical_accuracy": "acc",
    "accuracy": "acc",
    "top5_accuracy": "top5",
    "categorical_hinge": "hin",
    "categorical_mse": "mse",
    "categorical_mae": "mae",
}
_PERCENT = ("accuracy", "top5", "top_5", "dice", "iou", "exact_match", "precision", "recall", "f1")


def short_metrics(metrics: Mapping[str, float], prefix: str = "") -> str:
    """``acc: 97.25%, loss: 0.0912`` for one line."""
    return ", ".join(metric_parts(metrics, prefix))


def metric_parts(metrics: Mapping[str, float], prefix: str = "") -> list[str]:
    """The same, one text for each metric."""
    return [f"{prefix}{_short(name)}: {format_metric(name, value)}" for name, value in metrics.items()]


def format_metric(name: str, value: float) -> str:
    """A share in per cent, anything else with five digits."""
    percent = any(part in name for part in _PERCENT)
    return f"{100 * value:.2f}%" if percent else f"{value:.5f}"


def best_epoch(epoch: int, metric: str, value: float, **_: object) -> str:
    """``epoch 7, val_accuracy 97.25%``."""
    return f"epoch {epoch}, {metric} {format_metric(metric, value)}"


def _short(name: str) -> str:
    bare = name.removeprefix("val_")
    return ("val_" if bare != name else "") + _SHORT.get(bare, bare)


def joined(parts: Sequence[str], width: int | None) -> str:
    """Parts with commas, broken between them where a line would be longer than ``width``; None: one line."""
    lines = [parts[0]]
    for part in parts[1:]:
        if width is not None and len(lines[-1]) + len(part) + 3 > width:
            lines[-1] += ","
            lines.append(f"  {part}")
        else:
            lines[-1] += f", {part}"
    return "\n".join(lines)


def time_left(seconds: float) -> str:
    """``0:42 left``, ``1:02:03 left``."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    clock = f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"{clock} left"

"""Values of a log as a page can show them. Nothing in a file is taken for what it says it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringlet.training.events import moment, number, whole

__all__ = ["MAX_TEXT", "count", "figures", "moment", "number", "table", "text", "whole"]

MAX_TEXT = 400


def count(value: Any) -> int:
    """A number of things; 0 for anything else."""
    return whole(value) or 0


def text(value: Any, limit: int = MAX_TEXT) -> str:
    """A text that is not too long; empty for anything else."""
    if not isinstance(value, str):
        return ""
    return value if len(value) <= limit else f"{value[: limit - 1]}…"


def table(value: Any) -> Mapping[str, Any]:
    """A mapping; empty for anything else."""
    return value if isinstance(value, dict) else {}


def figures(value: Any) -> str:
    """``loss 0.1234, accuracy 0.9712``."""
    return ", ".join(f"{text(name, 40)} {_digits(item)}" for name, item in list(table(value).items())[:20])


def _digits(value: Any) -> str:
    found = number(value)
    return text(value, 20) if found is None else f"{found:.4g}"

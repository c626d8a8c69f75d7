"""What ``ringlet.keras`` refuses."""

from __future__ import annotations

from ringlet.errors import UsageError


class ArgumentError(UsageError, ValueError):
    """An argument, or a way of training, that cannot work with several ranks."""

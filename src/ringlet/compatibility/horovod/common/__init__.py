"""``horovod.common``: what all frameworks share."""

from __future__ import annotations

from ringlet.named.horovod import *  # noqa: F403
from ringlet.named.horovod import __all__ as _names

__all__ = list(_names)

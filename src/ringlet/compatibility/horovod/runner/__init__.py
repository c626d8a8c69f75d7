"""``horovod.runner``: functions on new ranks, and ``horovodrun``."""

from __future__ import annotations

from ringlet.launch.horovod import run_like_horovod as run

__all__ = ["run"]

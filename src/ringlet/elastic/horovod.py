"""Horovod's names of what elastic states of all frameworks share (``horovod.common.elastic``)."""

from __future__ import annotations

from ringlet.elastic.loop import ElasticState as State
from ringlet.elastic.loop import run as run_fn
from ringlet.named.horovod import HorovodInternalError, HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt", "State", "run_fn"]

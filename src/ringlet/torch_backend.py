"""Makes the name "ringlet" known to ``torch.distributed``. Cheap on purpose: PyTorch loads it when it is imported.

Nothing else of Ringlet is imported before a process group is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

NAME = "ringlet"


def register() -> None:
    """Let ``init_process_group("ringlet")`` work. Harmless when repeated."""
    import torch.distributed as distributed

    if not distributed.is_available() or NAME in distributed.Backend.backend_list:
        return
    distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    _extend_rendezvous()


def _create(options: Any, backend_options: Any) -> Any:
    from ringlet.torch.process_group import create

    return create(options, backend_options)


def _extend_rendezvous() -> None:
    """Where ``env://`` would complain that MASTER_ADDR is missing, ranks of other launchers than torchrun meet too."""
    rendezvous: Any = import_module("torch.distributed.rendezvous")
    handlers: dict[str, Any] = rendezvous._rendezvous_handlers
    by_variables = handlers["env"]

    def meet(url: str, timeout: timedelta = timedelta(minutes=30), **options: Any) -> Iterator[Any]:
        if os.environ.get("MASTER_ADDR") or not _started_by_another_launcher():
            yield from by_variables(url, timeout=timeout, **options)
            return
        from ringlet.torch.process_group.meeting import meet_by_launcher

        yield from meet_by_launcher(url, timeout)

    handlers["env"] = meet


def _started_by_another_launcher() -> bool:
    from ringlet.comm import environments

    world = environments.detect()
    return world is not None and world.launcher != "torchrun"

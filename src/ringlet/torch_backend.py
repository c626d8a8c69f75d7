"""Makes the name "ringlet" known to ``torch.distributed``. Cheap on purpose: PyTorch loads it when it is imported.

Nothing else of Ringlet is imported before a process group is made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import wraps
from importlib import import_module
from typing import Any

NAME = "ringlet"
DEVICES = ("cpu", "cuda")
"""Tensors of other devices than the CPU travel by its memory, unless another backend is named for them."""


def register() -> None:
    """Let ``init_process_group("ringlet")`` work. Harmless when repeated."""
    import torch.distributed as distributed

    if not distributed.is_available() or NAME in distributed.Backend.backend_list:
        return
    distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=list(DEVICES))
    _extend_rendezvous()
    _replace("monitored_barrier", _monitored_barrier)
    _replace("split_group", _split_group)


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


# -- functions that refuse all backends but some of PyTorch's own -----------------------------------------------------
def _replace(name: str, ours: Callable[..., Any]) -> None:
    """Let a function of ``torch.distributed`` do what ``ours`` does for groups of this backend, its first argument."""
    modules = import_module("torch.distributed"), import_module("torch.distributed.distributed_c10d")
    original = getattr(modules[1], name)

    @wraps(original)
    def chosen(group: Any = None, *arguments: Any, **options: Any) -> Any:
        group = options.pop("parent_pg", options.pop("group", group))
        mine = _own_group(group)
        return original(group, *arguments, **options) if mine is None else ours(mine, *arguments, **options)

    for module in modules:
        setattr(module, name, chosen)


def _own_group(group: Any) -> Any:
    """The group if it is of this backend; ``None`` stands for that of all ranks."""
    module = sys.modules.get(f"{__package__}.torch.process_group")
    if module is None:
        return None
    asked = group if group is not None else import_module("torch.distributed").group.WORLD
    return asked if isinstance(asked, module.RingletProcessGroup) else None


def _monitored_barrier(group: Any, timeout: timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
    limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    group.monitored_barrier(limit, wait_all_ranks)


def _split_group(group: Any, split_ranks: Any = None, *arguments: Any, **options: Any) -> Any:
    from ringlet.torch.process_group.splitting import split

    return split(group, split_ranks, *arguments, **options)

"""Engines by name; their frameworks are imported when one is asked for."""

from __future__ import annotations

from typing import Any

from ringlet.allocator import keep_freed_memory
from ringlet.engines.contract import Replica
from ringlet.errors import UnknownNameError
from ringlet.libraries import require
from ringlet.models.spec import ModelSpec

ENGINES = ("native", "torch", "keras")


def create_replica(
    engine: str, spec: ModelSpec, *, device: str = "cpu", tuning: str = "measured", exact: bool = False, **options: Any
) -> Replica:
    """A replica on ``engine``; ``options`` are those of :class:`~ringlet.engines.contract.Replica`, and ``threads``.

    ``device`` is PyTorch's name of one, ``tuning`` is for the native engine, ``exact`` for these two. A framework that
    is not installed is a :class:`~ringlet.errors.UsageError` that says how to get it.
    """
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    if engine != "native":
        keep_freed_memory()
    if engine == "torch":
        require("torch")
        from ringlet.engines.torch.replica import TorchReplica

        return TorchReplica(spec, device=device, exact=exact, **options)
    if engine == "keras":
        from ringlet.engines.keras import import_keras

        import_keras(options.get("threads"))
        from ringlet.engines.keras.replica import KerasReplica

        return KerasReplica(spec, **options)
    from ringlet.engines.native import NativeReplica

    return NativeReplica(spec, exact=exact, tuning=tuning, **options)

"""The engine on Keras 3, whichever backend it is set to (TensorFlow, PyTorch, JAX): the same spec and flat buffers.

``network`` makes a functional model of a spec, of the layers that operations have for Keras (the export to Keras takes
them too), ``losses`` has the losses, ``backends`` compile a pass and differentiate it, ``replica`` runs it all.
A model that a program brings is looked at by ``model_spec`` and run by ``model_replica``. Importing this package does
not import Keras; its modules do.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from ringlet.allocator import keep_freed_memory
from ringlet.component import option
from ringlet.engines.engine import Engine
from ringlet.errors import UsageError
from ringlet.libraries import garbage_kept, require
from ringlet.models.module_spec import ModuleSpec
from ringlet.models.spec import ModelSpec

if TYPE_CHECKING:
    from ringlet.engines.keras.replica import KerasReplica
    from ringlet.engines.modules import ModuleReplica

BACKENDS = {"tensorflow": "keras", "torch": "torch", "jax": "jax"}
"""Backends that can train, each with the extra of Ringlet that brings it."""


@final
class Keras(Engine):
    """Keras 3 on its backend (KERAS_BACKEND), which chooses its device itself."""

    name: ClassVar[str] = "keras"
    library: ClassVar[str | None] = "keras"
    device: Literal["auto"] = option(
        "auto", "chosen by the backend; CUDA_VISIBLE_DEVICES= hides GPUs from it", affects_result=False
    )

    def build(self, spec: ModelSpec, *, device: str = "cpu", tuning: str = "measured", **options: Any) -> KerasReplica:
        """A replica."""
        del device, tuning
        keep_freed_memory()
        import_keras(options.get("threads"))
        from ringlet.engines.keras.replica import KerasReplica

        return KerasReplica(spec, **options)

    def build_module(self, spec: ModuleSpec, *, device: str = "cpu", **options: Any) -> ModuleReplica:
        """A replica of a Keras model."""
        if spec.framework != self.name:
            return super().build_module(spec, device=device, **options)
        keep_freed_memory()
        import_keras(options.get("threads"))
        from ringlet.engines.keras.model_replica import KerasModelReplica

        return KerasModelReplica(spec, **options)


def import_keras(threads: int | None = None) -> Any:
    """The module ``keras`` on a backend that can train, with ``threads`` threads if nothing has been computed yet.

    Without a number OMP_NUM_THREADS counts, which not all backends heed by themselves.
    """
    if find_spec("keras") is None:
        return require("keras")  # says how to get it
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # or TensorFlow praises the processor on stderr
    try:
        with garbage_kept():
            keras: Any = import_module("keras")
    except ImportError as error:
        raise UsageError(f"Keras cannot use its backend ({error}). {_advice()}") from error
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise UsageError(f"Keras runs on the backend '{backend}', which cannot train. {_advice()}")
    number = threads or _number(os.environ.get("OMP_NUM_THREADS", ""))
    if number is not None:
        import_module(f"{__name__}.backends.{backend}").set_threads(number)
    return keras


def _advice() -> str:
    found = [name for name in BACKENDS if find_spec(name) is not None]
    ways = f"Set KERAS_BACKEND={' or '.join(found)}" if found else 'Install one: pip install "ringlet[keras]"'
    return f"{ways}; expected one of {', '.join(BACKENDS)}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None

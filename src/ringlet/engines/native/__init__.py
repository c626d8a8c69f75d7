"""The native engine: compiles a spec into flat lists of kernel calls over buffers with the batch innermost.

``placement`` joins nodes and decides which values share memory, operations (:mod:`ringlet.operations.native`) emit
symbolic kernel calls, ``buffers`` lays them out by lifetime, ``tuning`` chooses convolution algorithms, ``binding``
makes functions of them and knows which of them finishes which gradients, ``plan`` does all that in order and
``replica`` runs it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Literal, final

import numpy as np

from ringlet.component import option
from ringlet.engines.engine import Engine
from ringlet.engines.native.plan import Plan, arena_bytes, compile_plan
from ringlet.engines.native.replica import NativeReplica
from ringlet.losses import Loss
from ringlet.models.module_spec import Network
from ringlet.models.spec import ModelSpec

__all__ = ["Native", "NativeReplica", "Plan", "compile_plan"]


@final
class Native(Engine):
    """Ringlet's own kernels, on the processor."""

    name: ClassVar[str] = "native"
    knows_memory: ClassVar[bool] = True
    measures_algorithms: ClassVar[bool] = True
    adapts_threads: ClassVar[bool] = True
    device: Literal["auto", "cpu"] = option("auto", "the processor; engine torch takes GPUs", affects_result=False)
    exact: bool = option(False, "only convolution algorithms that round like the direct one (no Winograd)")

    def activation_bytes(
        self, spec: Network, local_batch_size: int, dtype: str, loss: str | Loss, *, training: bool = True
    ) -> int:
        """The memory of the plan, to the byte."""
        assert isinstance(spec, ModelSpec), "modules have engines of their own"
        return _arena_bytes(spec, local_batch_size, dtype, loss, training)

    def build(self, spec: ModelSpec, *, device: str = "cpu", tuning: str = "measured", **options: Any) -> NativeReplica:
        """A replica."""
        del device
        return NativeReplica(spec, exact=self.exact, tuning=tuning, **options)


@lru_cache(maxsize=256)
def _arena_bytes(spec: ModelSpec, local_batch_size: int, dtype: str, loss: str | Loss, training: bool) -> int:
    return arena_bytes(spec, local_batch_size, np.dtype(dtype), loss, training=training)

"""The native engine: compiles a spec into flat lists of kernel calls over buffers with the batch innermost.

``placement`` joins nodes and decides which values share memory, operations (:mod:`ringlet.operations.native`) emit
symbolic kernel calls, ``buffers`` lays them out by lifetime, ``tuning`` chooses convolution algorithms, ``binding``
makes functions of them and knows which of them finishes which gradients, ``plan`` does all that in order and
``replica`` runs it.
"""

from __future__ import annotations

from ringlet.engines.native.plan import Plan, compile_plan
from ringlet.engines.native.replica import NativeReplica

__all__ = ["NativeReplica", "Plan", "compile_plan"]

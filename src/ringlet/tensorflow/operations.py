"""Collectives of tensors as one function, with gradients: what ``collectives`` has under Horovod's names.

Gradients go the same way back: of a reduction the gradients of all ranks reduced, of a gathering their average, cut to
this rank's rows, of a broadcast their average on the root. They are exchanged in turn, so all ranks must differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import tensorflow as tf

from ringlet.comm.contract import Array
from ringlet.named import ProcessSet, Reduction, Submission, session
from ringlet.named.horovod import Scaling
from ringlet.named.kinds import kind_of
from ringlet.tensorflow.errors import translated
from ringlet.tensorflow.tensors import is_plain_graph, outside, to_tensor

_AVERAGE = Scaling()
_SUM = Scaling(Reduction.SUM)


@final
@dataclass(frozen=True)
class Call:
    """One collective. Without a ``name`` the n-th call of a kind belongs to the n-th of the other ranks."""

    kind: str
    name: str | None = None
    process_set: ProcessSet | None = None
    how: Scaling = _AVERAGE
    root: int = 0

    def run(self, tensors: Sequence[Any], splits: Any = None) -> list[Any]:
        """Its results, differentiable: one for each tensor; of an alltoall the rows, and how many came from each."""
        with translated():
            session.collectives(self.process_set)  # who may not take part learns it now
        call = replace(self, name=self.name or self._name_in_plain_graph())
        inputs = [to_tensor(tensor) for tensor in tensors]
        return list(_differentiable(call, splits)(*inputs))

    def execute(self, tensors: Sequence[Any], splits: Any) -> list[Any]:
        """Its results, not differentiable. ``splits`` of an alltoall may be None for equal parts."""
        is_alltoall = self.kind == "alltoall"
        inputs = [*tensors, *([] if splits is None else [splits])]
        dtypes = [tensor.dtype for tensor in tensors]
        if is_alltoall:
            dtypes.append(tf.int32 if splits is None else splits.dtype)

        def function(arrays: list[Array]) -> list[Array]:
            rows = None if splits is None else tuple(int(length) for length in arrays.pop())
            results = self._carry_out(arrays, rows)
            return [*results[:-1], np.asarray(results[-1], dtypes[-1].as_numpy_dtype)] if is_alltoall else results

        results = outside(function, inputs, dtypes)
        keeps_shape = kind_of(self.kind).takes_outputs
        for result, tensor in zip(results, tensors, strict=False):
            if tensor.shape.rank is not None:
                result.set_shape(tensor.shape if keeps_shape else [None, *tensor.shape[1:]])
        return results

    def again(self, kind: str, how: Scaling = _AVERAGE) -> Call:
        """The collective of a gradient: named after this one, so the order of ranks' backward passes may differ."""
        return Call(kind, None if self.name is None else f"gradient of {self.name}", self.process_set, how)

    def _carry_out(self, arrays: Sequence[Array], splits: tuple[int, ...] | None) -> list[Array]:
        collectives = session.collectives(self.process_set)
        name = self.name or collectives.default_name(self.kind)
        how = self.how.op, self.how.prescale, self.how.postscale
        return collectives.run(Submission(self.kind, name, tuple(arrays), None, *how, self.root, splits))

    def _name_in_plain_graph(self) -> str | None:
        """The order in which a graph of TensorFlow 1 is made is that of all ranks; the order it runs in is not."""
        return session.collectives(self.process_set).default_name(f"graph.{self.kind}") if is_plain_graph() else None


def _differentiable(call: Call, splits: Any) -> Any:
    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def forward(*inputs: Any) -> tuple[list[Any], Callable[..., Any]]:
        results = call.execute(inputs, splits)

        def backward(*gradients: Any) -> list[Any]:
            dense = [None if gradient is None else to_tensor(gradient) for gradient in gradients]
            return _GRADIENTS[call.kind](call, inputs, results, dense)

        return results, backward

    return forward


# -- gradients --------------------------------------------------------------------------------------------------------
def _allreduce_gradients(call: Call, inputs: Any, results: Any, gradients: list[Any]) -> list[Any]:
    if call.how.op is Reduction.PRODUCT:
        return _product_gradients(call, inputs, gradients)
    if call.how.op in (Reduction.MIN, Reduction.MAX):
        return _extreme_gradients(call, inputs, results, gradients)
    return call.again("allreduce", call.how).run(gradients)


def _extreme_gradients(call: Call, inputs: Any, results: Any, gradients: list[Any]) -> list[Any]:
    """To the elements that were the smallest or largest, in equal parts where several were."""
    factor = call.how.prescale * call.how.postscale
    chosen = [
        tf.cast(tf.equal(value * tf.cast(factor, value.dtype), result), value.dtype)
        for value, result in zip(inputs, results, strict=True)
    ]
    summed = call.again("allreduce", _SUM).run([*gradients, *chosen])
    totals, counts = summed[: len(gradients)], summed[len(gradients) :]
    parts = zip(chosen, totals, counts, strict=True)
    return [tf.cast(factor, mark.dtype) * mark * total / tf.maximum(count, 1) for mark, total, count in parts]


def _product_gradients(call: Call, inputs: Any, gradients: list[Any]) -> list[Any]:
    """Times the product of the other ranks' values, which are gathered: a quotient would fail at zeros."""
    rows = [tf.expand_dims(value, 0) for value in (*gradients, *inputs)]
    gathered = call.again("allgather").run(rows)
    collectives = session.collectives(call.process_set)
    others = [place for place in range(collectives.size) if place != collectives.rank]
    factor = call.how.postscale * call.how.prescale**collectives.size
    pairs = zip(gathered[: len(gradients)], gathered[len(gradients) :], strict=True)
    return [
        tf.cast(factor, total.dtype) * tf.reduce_sum(total, 0) * tf.reduce_prod(tf.gather(values, others), 0)
        for total, values in pairs
    ]


def _allgather_gradients(call: Call, inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
    lengths = [tf.shape(value)[:1] for value in inputs]
    own = tf.expand_dims(tf.concat(lengths, 0), 0)
    name = None if call.name is None else f"lengths for {call.name}"
    (of_ranks,) = replace(call, name=name).execute([own], None)
    starts = tf.reduce_sum(of_ranks[: session.collectives(call.process_set).rank], 0)
    averages = call.again("allreduce").run(gradients)
    return [
        average[starts[place] : starts[place] + length[0]]
        for place, (average, length) in enumerate(zip(averages, lengths, strict=True))
    ]


def _broadcast_gradients(call: Call, _inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
    averages = call.again("allreduce").run(gradients)
    collectives = session.collectives(call.process_set)
    is_root = collectives.ranks[collectives.rank] == call.root
    return averages if is_root else [tf.zeros_like(average) for average in averages]


def _alltoall_gradients(call: Call, _inputs: Any, results: Any, gradients: list[Any]) -> list[Any]:
    return call.again("alltoall").run(gradients[:1], results[1])[:1]


def _reducescatter_gradients(call: Call, _inputs: Any, _results: Any, gradients: list[Any]) -> list[Any]:
    size = session.collectives(call.process_set).size
    factor = call.how.prescale * call.how.postscale * (size if call.how.op is Reduction.SUM else 1)
    scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]
    return call.again("allgather").run(scaled)


_GRADIENTS: dict[str, Callable[[Call, Any, Any, list[Any]], list[Any]]] = {
    "allreduce": _allreduce_gradients,
    "allgather": _allgather_gradients,
    "broadcast": _broadcast_gradients,
    "alltoall": _alltoall_gradients,
    "reducescatter": _reducescatter_gradients,
}

"""``tf.GradientTape`` whose gradients are those of all ranks, for training loops of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, final

import tensorflow as tf

from ringlet.keras.backends.tensorflow import dense
from ringlet.keras.optimizer import gradient_scaling, layer_variables
from ringlet.named import ProcessSet, Reduction
from ringlet.named.horovod import Compressor
from ringlet.named.session import global_process_set
from ringlet.tensorflow.collectives import reduced
from ringlet.tensorflow.tensors import Compression


@final
class DistributedGradientTape:
    """Does what the tape does; :meth:`gradient` gives the average (or sum) over all ranks of ``process_set``.

    Every rank must ask for the same gradients; ranks outside of the set get their own. Sparse gradients stay sparse,
    unless ``sparse_as_dense``. ``gradient_predivide_factor`` f: an average is 1/f before and f/size after the sum.
    ``scale_local_gradients``: gradients of local sources are divided by the number of ranks, as those of the others
    are. Devices and groups are accepted for Horovod's sake: all dense gradients travel together.
    """

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",  # noqa: ARG002
        device_sparse: str = "",  # noqa: ARG002
        compression: type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        op: Reduction = Reduction.AVERAGE,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,  # noqa: ARG002
        groups: Any = None,  # noqa: ARG002
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self._tape = gradtape
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._how = gradient_scaling(op, gradient_predivide_factor)
        self._scale_local_gradients = scale_local_gradients
        self._local: set[int] = set()
        self.process_set = process_set

    def register_local_source(self, source: Any) -> None:
        """The gradient of this variable stays that of this rank."""
        self._local.add(id(source))

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,  # noqa: ARG002  names never depend on scopes
        **options: Any,
    ) -> Any:
        """The gradients of ``target`` on all ranks, in the structure of ``sources``; missing ones are zeros."""
        flat: Sequence[Any] = tf.nest.flatten(sources)
        found = self._tape.gradient(target, flat, output_gradients, **options)
        if self.process_set.included() and self.process_set.size() > 1:
            found = self._exchanged(flat, found)
        return tf.nest.pack_sequence_as(sources, found, expand_composites=False)

    def _exchanged(self, sources: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        results = [self._prepared(*pair) for pair in zip(sources, gradients, strict=True)]
        shared = [place for place, source in enumerate(sources) if id(source) not in self._local]
        exchanged = reduced(
            [results[place] for place in shared], self._how, self._compression, "gradients of a tape", self.process_set
        )
        for place, result in zip(shared, exchanged, strict=True):
            results[place] = result
        return results

    def _prepared(self, source: Any, gradient: Any) -> Any:
        if id(source) in self._local:
            return self._scaled(gradient) if self._scale_local_gradients else gradient
        if gradient is None:
            return tf.zeros_like(source)
        return dense(gradient, source) if self._sparse_as_dense else gradient

    def _scaled(self, gradient: Any) -> Any:
        size = self.process_set.size()
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / size, gradient.indices, gradient.dense_shape)
        return None if gradient is None else gradient / size

    def __enter__(self) -> Self:
        self._tape.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tape.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)


def PartialDistributedGradientTape(  # noqa: N802  Horovod's name
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: Reduction = Reduction.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any | Iterable[Any] | None = None,
    scale_local_gradients: bool = True,
) -> DistributedGradientTape:
    """A :class:`DistributedGradientTape` that leaves the gradients of ``local_layers`` to each rank."""
    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
        groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for variable in layer_variables(local_layers):
        tape.register_local_source(variable)
    return tape

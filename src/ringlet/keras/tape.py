"""``tf.GradientTape`` whose gradients are those of all ranks: for training loops of one's own in TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, final

import tensorflow as tf

from ringlet.keras.compression import Compression, Compressor
from ringlet.keras.optimizer import make_exchange, reduced
from ringlet.named import ProcessSet, Reduction


@final
class DistributedGradientTape:
    """Does what ``tape`` does; :meth:`gradient` gives the average (or sum) over all ranks.

    The arguments are those of :func:`~ringlet.keras.DistributedOptimizer`. Every rank must ask for the same gradients.
    """

    def __init__(
        self,
        tape: Any,
        device_dense: str = "",  # noqa: ARG002  as Horovod has it: there is one way from ranks to ranks
        device_sparse: str = "",  # noqa: ARG002
        compression: Compressor = Compression.none,
        sparse_as_dense: bool = False,  # noqa: ARG002  sparse gradients always become dense
        op: Reduction = Reduction.AVERAGE,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,  # noqa: ARG002
        groups: Any = None,  # noqa: ARG002
        process_set: ProcessSet | None = None,
    ) -> None:
        self._tape = tape
        self._exchange = make_exchange("ringlet.keras.tape", op, compression, gradient_predivide_factor, process_set)

    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, **options: Any) -> Any:
        """The gradients of ``target`` on all ranks, in the structure of ``sources``; missing ones are zeros."""
        flat: Sequence[Any] = tf.nest.flatten(sources)
        found = self._tape.gradient(target, flat, output_gradients, **options)
        dense = [
            tf.zeros_like(source) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, source in zip(found, flat, strict=True)
        ]
        return tf.nest.pack_sequence_as(sources, reduced(self._exchange, dense, flat))

    def __enter__(self) -> Self:
        self._tape.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tape.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

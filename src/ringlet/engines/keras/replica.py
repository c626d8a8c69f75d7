"""The replica on Keras."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import Floats, Replica, TrainingPass
from ringlet.engines.dropout import DropoutMasks
from ringlet.engines.heads import TargetEncoder
from ringlet.engines.keras import backends
from ringlet.engines.keras.losses import loss_function
from ringlet.engines.keras.network import KerasNetwork
from ringlet.models.spec import ModelSpec


@final
class KerasReplica(Replica):
    """A network on the backend that Keras is set to (KERAS_BACKEND, or Keras' own configuration).

    A pass with its gradients is one compiled function, so all of it counts as forward in a timeline, and gradients are
    reported as one range at the end. Parameters are copied to the backend before a pass and gradients from it, as far
    as the backend needs that. ``threads`` have no effect here: a backend must know them before it begins, so
    :func:`ringlet.engines.keras.import_keras` sets them. ``options`` are those of
    :class:`~ringlet.engines.contract.Replica`; ``kernels`` draw the masks of dropout.
    """

    def __init__(self, spec: ModelSpec, *, threads: int | None = None, **options: Any) -> None:  # noqa: ARG002
        super().__init__(spec, **options)
        self._graph = spec
        self._loss = loss_function(self.head)
        self._masks = DropoutMasks(spec, self.dtype, self.kernels)
        self._no_masks = self._masks.ones()
        self._apply_freeze()

    def _apply_freeze(self) -> None:
        """Both passes are compiled again; gradients of what is frozen are computed, and left out."""
        backend, nodes = backends.current(self.compute_dtype), self._graph.frozen_nodes(self.frozen)
        self._network = KerasNetwork(self._graph, self.head.prediction, str(self.compute_dtype), nodes)
        buffers = backends.Buffers(self.parameters, self.gradients, self.state)
        self._training = backends.Variants(partial(backend.compile_training, self._step, buffers))
        self._inference = backends.Variants(partial(backend.compile_inference, self._infer, buffers))

    def prepare(self) -> None:
        """Compile both passes, for a whole batch."""
        inputs = np.zeros((self.local_batch_size, *self.spec.input_shape), self.dtype)
        targets = self._no_targets(len(inputs))
        outputs = self._outputs(len(inputs))
        before = self.state.flat.copy(), self.gradients.flat.copy()
        weights = self._weights(targets, None)
        factors = [*self._masks.draw(0, len(inputs)), *weights]
        self._training.of(factors)(inputs, targets, factors, 1.0, outputs)
        factors = [*self._no_masks, *weights]
        self._inference.of(factors)(inputs, targets, factors, outputs)
        self.state.flat[:], self.gradients.flat[:] = before

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        factors = [*self._masks.draw(how.key, len(inputs)), *self._weights(targets, how.weights)]
        run = self._training.of(factors)
        loss_sum = run(self._images(inputs), self._arranged(targets), factors, how.scale, outputs)
        how.timeline.mark("backward")
        self._clear_frozen()
        if how.on_ready is not None:
            how.on_ready(0, self.gradients.flat.size)
        return loss_sum

    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        factors = [*self._no_masks, *self._weights(targets, weights)]
        return self._inference.of(factors)(self._images(inputs), self._arranged(targets), factors, outputs)

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        run = self._inference.of(self._no_masks)
        run(self._images(inputs), self._no_targets(len(inputs)), self._no_masks, outputs)

    def _step(
        self, parameters: Sequence[Any], state: Sequence[Any], images: Any, targets: Any, factors: Sequence[Any]
    ) -> tuple[Any, Any, Sequence[Any]]:
        masks, weights = self._split(factors)
        prediction, outputs, new_state = self._network(parameters, state, images, masks, training=True)
        return self._loss(prediction, targets, weights), outputs, new_state

    def _infer(
        self, parameters: Sequence[Any], state: Sequence[Any], images: Any, targets: Any, factors: Sequence[Any]
    ) -> tuple[Any, Any]:
        masks, weights = self._split(factors)
        prediction, outputs, _ = self._network(parameters, state, images, masks, training=False)
        return self._loss(prediction, targets, weights), outputs

    def _split(self, factors: Sequence[Any]) -> tuple[Sequence[Any], Any | None]:
        num_masks = len(self._no_masks)
        return factors[:num_masks], factors[num_masks][..., 0] if len(factors) > num_masks else None

    def _weights(self, targets: NDArray[Any], of_samples: NDArray[Any] | None) -> list[NDArray[Any]]:
        """The weights of the loss if there are any, with one more axis: graphs take a flat array for a buffer."""
        found = self.encoder.weights(targets, of_samples)
        return [] if found is None else [np.ascontiguousarray(found[..., None])]

    def _images(self, inputs: NDArray[Any]) -> NDArray[Any]:
        return inputs.astype(self.dtype, copy=False)

    def _arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """As the loss wants them; classes as int32, which all backends have."""
        arranged = self.encoder.arranged(targets)
        return arranged.astype(np.int32) if arranged.dtype.kind == "i" else arranged

    def _no_targets(self, num_samples: int) -> NDArray[Any]:
        shape, dtype = TargetEncoder(self.loss.targets, self.spec.output_shape, self.dtype).buffer(num_samples)
        return np.zeros((num_samples, *shape[:-1]), dtype)

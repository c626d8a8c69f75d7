"""The replica of a Keras model, used as a pure function of its variables on whichever backend Keras has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

import keras as typed_keras
import numpy as np
from numpy.typing import NDArray

from ringlet.engines.contract import Floats, TrainingPass
from ringlet.engines.dropout import mix
from ringlet.engines.heads import TargetEncoder
from ringlet.engines.keras import backends
from ringlet.engines.keras.losses import loss_function
from ringlet.engines.keras.model_spec import as_outputs, is_seed, names_of, single_output, takes_channels_last, to_model
from ringlet.engines.modules import Arrays, ModuleReplica, OwnLoss, loss_title, mean_with_weights
from ringlet.errors import SpecError
from ringlet.models.module_spec import ModuleSpec

keras: Any = typed_keras
"""It comes without types."""

_ACTIVATIONS: dict[str, Any] = {
    "softmax": lambda outputs: keras.ops.softmax(outputs, axis=1),
    "sigmoid": lambda outputs: keras.ops.sigmoid(outputs),
    "identity": lambda outputs: outputs,
}


@final
class KerasModelReplica(ModuleReplica):
    """A network that is ``spec.module``, a Keras model.

    Passes are those of :class:`~ringlet.engines.keras.replica.KerasReplica`: one compiled function of the flat buffers.
    The model's own variables are as they were until :meth:`publish`. Its generators of random numbers are fed a seed
    for each pass. Losses of layers (regularisers, ``add_loss``) count once for each sample.
    """

    def __init__(
        self, spec: ModuleSpec, *, threads: int | None = None, own_loss: OwnLoss | None = None, **options: Any
    ) -> None:
        del threads  # see KerasReplica
        model = spec.module
        names, self.model = names_of(model), model
        self._variables = {names[id(variable)]: variable for variable in model.variables}
        wanted = [tensor.name for tensor in spec.tensors if tensor.kind in ("parameter", "state")]
        super().__init__(spec, {name: _array(self._variables[name]) for name in wanted}, own_loss, **options)
        if self.compute_dtype != self.dtype:
            raise SpecError(
                f"dtype = {self.compute_dtype}: model '{spec.name}' computes by its own policy. Make it with "
                "keras.config.set_dtype_policy('mixed_bfloat16') and leave dtype out"
            )
        self._channels_last = takes_channels_last(model, spec.input_shape)
        self._places = _places(model, spec)
        self._seeds = [variable for variable in model.non_trainable_variables if is_seed(variable)]
        self._constants = [tensor.name for tensor in spec.tensors if tensor.kind == "constant"]
        self._feeds_constants = keras.backend.backend() == "jax"  # which would compile them into the pass
        self._activation = _ACTIVATIONS[spec.activation]
        self._named_loss = None if own_loss is not None else loss_function(self.head)
        self._backend = backend = backends.current(self.compute_dtype)
        buffers = backends.Buffers(self.parameters, self.gradients, self.state)
        self._num_fed = len(self._seeds) + (len(self._constants) if self._feeds_constants else 0)
        self._training = backends.Variants(partial(backend.compile_training, self._step, buffers))
        self._inference = backends.Variants(partial(backend.compile_inference, self._infer, buffers))

    def prepare(self) -> None:
        """Compile both passes, for a whole batch; with a loss of the program the first pass does it."""
        if self._own_loss is not None:
            return
        inputs = np.zeros((self.local_batch_size, *self.spec.input_shape), self.dtype)
        targets, outputs = self._no_targets(len(inputs)), self._outputs(len(inputs))
        before = self.state.flat.copy(), self.gradients.flat.copy()
        fed = [*self._fed(0), *self._weights(targets, None)]
        self._training.of(fed)(inputs, targets, fed, 1.0, outputs)
        self._inference.of(fed)(inputs, targets, fed, outputs)
        self.state.flat[:], self.gradients.flat[:] = before

    def kept(self) -> Arrays:
        """See :class:`~ringlet.engines.modules.ModuleReplica`."""
        return {name: _array(self._variables[name]) for name in self._constants}

    def take_kept(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """See :class:`~ringlet.engines.modules.ModuleReplica`."""
        for name in self._constants:
            self._variables[name].assign(tensors[name])

    def publish(self) -> None:
        """Copy the flat buffers into the model's variables."""
        for name, values in (*self.parameters.views.items(), *self.state.views.items()):
            self._variables[name].assign(values)

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        self._forget_first()
        arranged, fed = self._arranged(targets), [*self._fed(how.key), *self._weights(targets, how.weights)]
        with self._backend.seeded(how.key):
            loss_sum = self._training.of(fed)(self._images(inputs), arranged, fed, how.scale, outputs)
        how.timeline.mark("backward")
        if how.on_ready is not None:
            how.on_ready(0, self.gradients.flat.size)
        return loss_sum

    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        self._forget_first()
        fed = [*self._fed(0), *self._weights(targets, weights)]
        return self._inference.of(fed)(self._images(inputs), self._arranged(targets), fed, outputs)

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        self._forget_first()
        if self._own_loss is None:
            fed = self._fed(0)
            self._inference.of(fed)(self._images(inputs), self._no_targets(len(inputs)), fed, outputs)
            return
        self.publish()  # without targets there is no loss to compute: the model itself answers
        images = to_model(keras.ops.convert_to_tensor(self._images(inputs)), channels_last=self._channels_last)
        raw = as_outputs(self.model(images, training=False), channels_last=self._channels_last)
        np.copyto(outputs, keras.ops.convert_to_numpy(self._activation(raw)))

    # -- a pass, in the backend's tensors ------------------------------------------------------------------------------
    def _step(
        self, parameters: Sequence[Any], state: Sequence[Any], images: Any, targets: Any, fed: Sequence[Any]
    ) -> tuple[Any, Any, Sequence[Any]]:
        return self._pass(parameters, state, images, targets, fed, training=True)

    def _infer(
        self, parameters: Sequence[Any], state: Sequence[Any], images: Any, targets: Any, fed: Sequence[Any]
    ) -> tuple[Any, Any]:
        loss, outputs, _ = self._pass(parameters, state, images, targets, fed, training=False)
        return loss, outputs

    def _pass(
        self,
        parameters: Sequence[Any],
        state: Sequence[Any],
        images: Any,
        targets: Any,
        fed: Sequence[Any],
        *,
        training: bool,
    ) -> tuple[Any, Any, list[Any]]:
        """Summed loss, outputs and new state."""
        own, others = self._arrangement(parameters, state, fed)
        inputs = to_model(images, channels_last=self._channels_last)
        raw, changed, losses = self.model.stateless_call(own, others, inputs, return_losses=True, training=training)
        raw = single_output(self.model, raw)
        made = keras.ops.cast(as_outputs(raw, channels_last=self._channels_last), str(self.dtype))
        outputs = self._activation(made)
        weights = fed[self._num_fed][..., 0] if len(fed) > self._num_fed else None
        if self._named_loss is None:
            loss = self._own_sum(raw, to_model(targets, channels_last=self._channels_last), weights)
        else:
            loss = self._named_loss(made if self.head.prediction == "raw" else outputs, targets, weights)
        if losses:
            loss = loss + keras.ops.cast(keras.ops.shape(images)[0], loss.dtype) * sum(losses)
        new_state = list(state)
        for (kind, place), value in zip(self._places, changed, strict=True):
            if kind == "state":
                new_state[place] = keras.ops.cast(value, str(self.dtype))
        return loss, outputs, new_state

    def _arrangement(
        self, parameters: Sequence[Any], state: Sequence[Any], fed: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Values of the model's trainable variables and of the others, in its own order."""
        seeds, constants = fed[: len(self._seeds)], fed[len(self._seeds) : self._num_fed]
        found = []
        for kind, place in self._places:
            if kind == "state":
                found.append(state[place])
            elif kind == "seed":
                found.append(keras.ops.reshape(seeds[place], self._seeds[place].shape))
            elif self._feeds_constants:
                found.append(constants[place])
            else:
                found.append(self._variables[self._constants[place]].value)
        return list(parameters), found

    def _own_sum(self, raw: Any, targets: Any, weights: Any | None) -> Any:
        """Of a loss of the program, called as Keras calls its own: a mean over the samples, or one value for each."""
        assert self._own_loss is not None
        value = keras.ops.cast(self._own_loss(targets, raw), str(self.dtype))
        if len(value.shape) > 1:
            value = keras.ops.mean(value, axis=tuple(range(1, len(value.shape))))
        if weights is not None:
            if len(value.shape) == 0:
                raise mean_with_weights(loss_title(self._own_loss))
            value = value * weights
        if len(value.shape) == 1 or getattr(self._own_loss, "reduction", None) == "sum":
            return keras.ops.sum(value)
        return value * keras.ops.cast(keras.ops.shape(raw)[0], value.dtype)

    # -- what goes in --------------------------------------------------------------------------------------------------
    def _fed(self, key: int) -> list[Any]:
        """Seeds of the pass with this key, and constants where a backend must be given them."""
        seeds = []
        for index, variable in enumerate(self._seeds):
            number = mix(key, index)
            seeds.append(np.array([number >> 33, number & 0x7FFFFFFF], str(variable.dtype)))
        if not self._feeds_constants:
            return seeds
        return [*seeds, *(self._variables[name].value for name in self._constants)]

    def _weights(self, targets: NDArray[Any], of_samples: NDArray[Any] | None) -> list[NDArray[Any]]:
        """The weights of the loss if there are any, with one more axis: graphs take a flat array for a buffer."""
        found = self.encoder.weights(targets, of_samples)
        return [] if found is None else [np.ascontiguousarray(found[..., None])]

    def _images(self, inputs: NDArray[Any]) -> NDArray[Any]:
        return inputs.astype(self.dtype, copy=False)

    def _arranged(self, targets: NDArray[Any]) -> NDArray[Any]:
        """As the loss wants them; classes as int32, which all backends have."""
        arranged = self.encoder.arranged(targets)
        return arranged.astype(np.int32) if arranged.dtype.kind in "iu" else arranged

    def _no_targets(self, num_samples: int) -> NDArray[Any]:
        shape, dtype = TargetEncoder(self.loss.targets, self.spec.output_shape, self.dtype).buffer(num_samples)
        return np.zeros((num_samples, *shape[:-1]), dtype)


def _places(model: Any, spec: ModuleSpec) -> list[tuple[str, int]]:
    """For each variable that is not trained where its value comes from: state, seeds or constants, and its number."""
    names = names_of(model)
    numbers = {info.name: ("state", place) for place, info in enumerate(spec.state)}
    constants = [tensor.name for tensor in spec.tensors if tensor.kind == "constant"]
    numbers |= {name: ("constant", place) for place, name in enumerate(constants)}
    seeds = [names[id(variable)] for variable in model.non_trainable_variables if is_seed(variable)]
    numbers |= {name: ("seed", place) for place, name in enumerate(seeds)}
    return [numbers[names[id(variable)]] for variable in model.non_trainable_variables]


def _array(variable: Any) -> NDArray[Any]:
    return np.array(keras.ops.convert_to_numpy(variable.value))

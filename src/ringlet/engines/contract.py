"""What every engine offers: a replica of a network with flat parameters, gradients and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ringlet.engines.dropout import step_key
from ringlet.engines.heads import loss_head, module_head, target_layout
from ringlet.errors import DataError, UsageError
from ringlet.kernels import load
from ringlet.kernels.bfloat16 import BFLOAT16, parameter_dtype
from ringlet.kernels.contract import Floats, Kernels
from ringlet.losses import Loss
from ringlet.models.initializers import initial_values
from ringlet.models.module_spec import ModuleSpec, Network
from ringlet.models.spec import ModelSpec, ParameterInfo
from ringlet.timeline import NO_TIMELINE, Timeline

__all__ = ["FlatTensors", "Floats", "OnReady", "Replica", "StepOutput", "TrainingPass", "positive"]

OnReady = Callable[[int, int], None]
"""Called with ``start, stop`` when these elements of the flat gradients are final."""

FirstValues = Callable[[ParameterInfo, int, DTypeLike], Floats]


@dataclass(frozen=True)
class FlatTensors:
    """Named tensors that live in one flat buffer, in the order in which they were declared."""

    flat: Floats
    views: dict[str, Floats]

    @classmethod
    def allocate(cls, infos: Iterable[ParameterInfo], dtype: DTypeLike, flat: Floats | None = None) -> FlatTensors:
        """Lay ``infos`` out one after the other in ``flat``, a foreign buffer, or in a new one filled with zeros."""
        infos = tuple(infos)
        size = sum(info.size for info in infos)
        if flat is None:
            flat = np.zeros(size, dtype)
        _check_foreign(flat, size, np.dtype(dtype))
        views: dict[str, Floats] = {}
        start = 0
        for info in infos:
            views[info.name] = flat[start : start + info.size].reshape(info.shape)
            start += info.size
        return cls(flat, views)


@dataclass(frozen=True)
class StepOutput:
    """What one pass over a batch gives: sums and counts, so that averages can weigh by samples."""

    loss_sum: float
    """Sum over the samples of each sample's loss, without the step's scale."""
    count: int
    """Number of samples."""
    outputs: Floats
    """``(count, *output_shape)``: what the last node gives (probabilities after softmax or sigmoid)."""


@dataclass(frozen=True, slots=True)
class TrainingPass:
    """What a training pass needs to know beside its samples."""

    scale: float
    """Factor of the gradients of the summed loss."""
    place: tuple[int, int, int]
    """Seed, step and shard: the random numbers of this pass follow from them."""
    timeline: Timeline
    on_ready: OnReady | None
    weights: NDArray[Any] | None = None
    """Of samples ``(n,)``, checked; None: all count the same."""

    @property
    def key(self) -> int:
        """The key of this pass's random streams."""
        return step_key(*self.place)


class Replica(ABC):
    """One copy of a network that can learn and predict: flat tensors, checks, chunks, empty batches.

    An engine adds three passes over samples that are known to fit: one in training mode and two in inference mode.
    ``parameters``, ``gradients`` (of the last :meth:`loss_and_gradients`) and ``state`` (running statistics) are in the
    order of the spec.

    ``parameters`` may be a foreign flat buffer, for example a shared window: it is used as it is, and
    :meth:`initialize` fills it on request. Without one the parameters are drawn from ``seed``. ``gradients`` may be a
    foreign flat buffer too, for example a row of a shared array; what it held is lost. ``kernels`` are an
    implementation or its name. ``loss`` is a :class:`~ringlet.losses.Loss` or the text that names one;
    ``class_weights`` multiply the losses of classes (:func:`~ringlet.engines.heads.check_class_weights`).
    ``first_values(tensor, seed, dtype)`` is what a tensor begins with.

    With ``dtype`` bfloat16 precision is mixed: ``compute_dtype``, that of activations and their gradients, is bfloat16;
    ``dtype``, that of everything outside a pass, is float32.
    """

    def __init__(
        self,
        spec: ModelSpec | ModuleSpec,
        *,
        loss: str | Loss = "categorical_cross_entropy",
        class_weights: ArrayLike | None = None,
        local_batch_size: int = 64,
        dtype: DTypeLike = "float32",
        seed: int = 0,
        kernels: Kernels | str | None = None,
        parameters: Floats | None = None,
        gradients: Floats | None = None,
        first_values: FirstValues = initial_values,
    ) -> None:
        self.spec: Network = spec
        self.local_batch_size = positive("local_batch_size", local_batch_size)
        self.compute_dtype = _floating(dtype)
        self.dtype = parameter_dtype(self.compute_dtype)
        self.kernels = load(kernels) if kernels is None or isinstance(kernels, str) else kernels
        self.head = module_head(spec.activation, loss) if isinstance(spec, ModuleSpec) else loss_head(spec, loss)
        self.loss = self.head.loss
        self.encoder = target_layout(self.loss, spec.output_shape, self.dtype, class_weights)
        self.parameters = FlatTensors.allocate(spec.parameters, self.dtype, parameters)
        self.gradients = FlatTensors.allocate(spec.parameters, self.dtype, gradients)
        if gradients is not None:
            _clear(gradients)
        self.state = FlatTensors.allocate(spec.state, self.dtype)
        self._first_values = first_values
        self.initialize(seed, keep_parameters=parameters is not None)
        self._input_shape = spec.input_shape
        self.frozen: frozenset[str] = frozenset()
        """Names of parameters that do not learn: their gradients are zero."""
        self._frozen_ranges: tuple[slice, ...] = ()

    def freeze(self, names: Set[str]) -> None:
        """Let these parameters, and no others, not learn: gradients that no one needs are not computed.

        Batch norm with no parameter that learns uses its running statistics in training too, and leaves them.
        """
        if names == self.frozen:
            return
        if unknown := sorted(names - self.parameters.views.keys()):
            raise UsageError(f"'{self.spec.name}' has no parameter '{unknown[0]}' to freeze")
        self.frozen = frozenset(names)
        starts = accumulate((info.size for info in self.spec.parameters), initial=0)
        places = zip(self.spec.parameters, starts, strict=False)
        self._frozen_ranges = tuple(slice(at, at + info.size) for info, at in places if info.name in names)
        self._apply_freeze()

    @abstractmethod
    def _apply_freeze(self) -> None:
        """:attr:`frozen` has changed."""

    def _clear_frozen(self) -> None:
        """Zeros in the gradients of what is frozen."""
        for part in self._frozen_ranges:
            self.gradients.flat[part] = 0

    def initialize(self, seed: int, *, keep_parameters: bool = False) -> None:
        """Draw the first parameters from ``seed`` (or keep them as they are) and reset the state."""
        for info in self.spec.state:
            self.state.views[info.name][...] = self._first_values(info, seed, self.dtype)
        for info in () if keep_parameters else self.spec.parameters:
            self.parameters.views[info.name][...] = self._first_values(info, seed, self.dtype)

    @abstractmethod
    def prepare(self) -> None:
        """Do now what would otherwise make the first passes slow; nothing that can be seen changes."""

    @abstractmethod
    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        """Forward and backward over checked samples: fills ``outputs`` and the gradients; gives the summed loss."""

    @abstractmethod
    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        """Forward in inference mode: fills ``outputs``, gives the summed loss; ``weights (n,)`` are checked."""

    @abstractmethod
    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        """Forward in inference mode: fills ``outputs``."""

    def loss_and_gradients(
        self,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        *,
        weights: ArrayLike | None = None,
        scale: float | None = None,
        seed: int = 0,
        step: int = 0,
        shard: int = 0,
        timeline: Timeline = NO_TIMELINE,
        on_ready: OnReady | None = None,
    ) -> StepOutput:
        """A training pass; ``gradients`` become ``scale`` (default one over n) times those of the summed loss.

        ``weights (n,)`` multiply the losses of their samples; the sum is still divided by n, not by theirs.
        Dropout draws from (seed, step, shard) and the layer. An empty batch (a shard without samples) gives zeros and
        changes no state. ``timeline`` is told ``"forward"`` at the start and ``"backward"`` once the loss has
        been computed.

        ``on_ready(start, stop)`` is called during the backward pass, by the same thread, as soon as elements
        ``start:stop`` of ``gradients.flat`` are final: the replica neither reads nor writes them any more before the
        next call of one of its methods. So an exchange of them may begin, and may change them. Every element is
        reported exactly once, in ranges as large as become final together. Their order depends on the network alone:
        equal on all ranks and in every step, an empty batch excepted, whose single range is the whole buffer.
        """
        timeline.mark("forward")
        inputs, targets = self._check(inputs, targets)
        num_samples = len(inputs)
        if num_samples > self.local_batch_size:
            raise UsageError(
                f"a batch of {num_samples} samples does not fit local_batch_size {self.local_batch_size}; "
                "create the replica with a larger local_batch_size or pass smaller batches"
            )
        if num_samples == 0:
            return self._without_samples(timeline, on_ready)
        outputs = self._outputs(num_samples)
        factor = 1.0 / num_samples if scale is None else float(scale)
        of_samples = self.encoder.check_weights(weights, num_samples)
        how = TrainingPass(factor, (seed, step, shard), timeline, on_ready, of_samples)
        loss_sum = self._train(inputs, targets, outputs, how)
        return StepOutput(loss_sum, num_samples, outputs)

    def evaluate(self, inputs: NDArray[Any], targets: NDArray[Any], weights: ArrayLike | None = None) -> StepOutput:
        """Loss and outputs in inference mode, in chunks of ``local_batch_size``; ``weights`` are those of samples."""
        inputs, targets = self._check(inputs, targets)
        of_samples = self.encoder.check_weights(weights, len(inputs))
        outputs = self._outputs(len(inputs))
        loss_sum = 0.0
        for part in self._chunks(len(inputs)):
            own = () if of_samples is None else (of_samples[part],)
            loss_sum += self._evaluate(inputs[part], targets[part], outputs[part], *own)
        return StepOutput(loss_sum, len(inputs), outputs)

    def predict(self, inputs: NDArray[Any]) -> Floats:
        """Outputs ``(n, *output_shape)`` in inference mode, in chunks of ``local_batch_size``."""
        inputs = self._check_inputs(inputs)
        outputs = self._outputs(len(inputs))
        for part in self._chunks(len(inputs)):
            self._predict(inputs[part], outputs[part])
        return outputs

    def _without_samples(self, timeline: Timeline, on_ready: OnReady | None) -> StepOutput:
        timeline.mark("backward")
        self.gradients.flat.fill(0)
        if on_ready is not None:
            on_ready(0, self.gradients.flat.size)
        return StepOutput(0.0, 0, self._outputs(0))

    def _chunks(self, num_samples: int) -> Iterator[slice]:
        size = self.local_batch_size
        return (slice(start, min(start + size, num_samples)) for start in range(0, num_samples, size))

    def _outputs(self, num_samples: int) -> Floats:
        return np.empty((num_samples, *self.spec.output_shape), self.dtype)

    def _check(self, inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs = self._check_inputs(inputs)
        return inputs, self.encoder.check(targets, len(inputs))

    def _check_inputs(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """``(n, *input_shape)``, contiguous, in the replica's dtype or bytes."""
        inputs = np.asarray(inputs)
        if inputs.dtype == self.dtype and inputs.shape[1:] == self._input_shape and inputs.flags.c_contiguous:
            return inputs
        if inputs.ndim == 0 or inputs.shape[1:] != self.spec.input_shape:
            raise DataError(
                f"inputs have shape {inputs.shape}; '{self.spec.name}' expects (n, {_listed(self.spec.input_shape)})"
            )
        if inputs.dtype.kind != "f" and inputs.dtype != np.uint8:
            raise DataError(
                f"inputs have dtype {inputs.dtype}; expected floating numbers (normalise images first) or uint8"
            )
        wanted = inputs.dtype if inputs.dtype == np.uint8 else self.dtype
        return np.ascontiguousarray(inputs, wanted)


def positive(name: str, value: int) -> int:
    """``value``, refused unless it is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise UsageError(f"{name} is {value!r}; expected an integer of at least 1")
    return int(value)


def _floating(dtype: DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if found not in (np.float32, np.float64, BFLOAT16):
        raise UsageError(f"dtype is {found}; engines compute in float32, float64 or bfloat16")
    return found


def _clear(gradients: Floats) -> None:
    """Zeros in a foreign buffer, whose owner may read it before the first step."""
    if not gradients.flags.writeable:
        raise UsageError("the buffer for the gradients is read-only; give one that can be written")
    gradients.fill(0)


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(extent) for extent in shape)


def _check_foreign(flat: Floats, size: int, dtype: np.dtype[Any]) -> None:
    if flat.ndim != 1 or flat.size != size or flat.dtype != dtype or not flat.flags.c_contiguous:
        raise UsageError(
            f"the flat buffer has shape {flat.shape} and dtype {flat.dtype}; "
            f"expected a contiguous one-dimensional buffer of {size} {dtype} values"
        )

"""The native engine's replica: checks what comes in, runs the plan's lists of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.engines.contract import FlatTensors, Floats, OnReady, StepOutput
from ringlet.engines.native.keys import step_key
from ringlet.engines.native.plan import Plan, Tensors, compile_plan
from ringlet.errors import DataError, UsageError
from ringlet.kernels import load
from ringlet.kernels.contract import Kernels
from ringlet.models.initializers import initial_values
from ringlet.models.spec import ModelSpec
from ringlet.timeline import NO_TIMELINE, Timeline


class NativeReplica:
    """A network on Ringlet's own kernels.

    The plan is compiled once for ``local_batch_size``; smaller batches run on it with padding lanes. ``parameters`` may
    be a foreign flat buffer, for example a shared window: it is used as it is, and :meth:`initialize` fills it on
    request. Without one the parameters are drawn from ``seed``. ``gradients`` may be a foreign flat buffer too, for
    example a row of a shared array; what it held is lost. ``kernels`` are an implementation or its name. ``exact``
    leaves out convolution algorithms with coarser rounding. With ``tuning="measured"`` the first use of training and of
    inference may measure convolution algorithms, which then depend on the machine and its number of threads; with
    ``"rule"`` they follow from the shapes alone: see :mod:`ringlet.engines.native.tuning`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        loss: str = "categorical_cross_entropy",
        local_batch_size: int = 64,
        dtype: DTypeLike = "float32",
        seed: int = 0,
        kernels: Kernels | str | None = None,
        parameters: Floats | None = None,
        gradients: Floats | None = None,
        threads: int | None = None,
        exact: bool = False,
        tuning: str = "measured",
    ) -> None:
        self.spec = spec
        self._input_shape = spec.input_shape
        self.loss = loss
        self.local_batch_size = _positive("local_batch_size", local_batch_size)
        self.dtype = _floating(dtype)
        self.kernels = load(kernels) if kernels is None or isinstance(kernels, str) else kernels
        _set_threads(self.kernels, threads)
        self.parameters = FlatTensors.allocate(spec.parameters, self.dtype, parameters)
        self.gradients = FlatTensors.allocate(spec.parameters, self.dtype, gradients)
        if gradients is not None:
            _clear(gradients)
        self.state = FlatTensors.allocate(spec.state, self.dtype)
        self.initialize(seed, keep_parameters=parameters is not None)
        tensors = Tensors(self.parameters, self.gradients, self.state)
        self.plan: Plan = compile_plan(
            spec, self.local_batch_size, self.dtype, loss, self.kernels, tensors, exact=exact, tuning=tuning
        )

    def initialize(self, seed: int, *, keep_parameters: bool = False) -> None:
        """Draw the first parameters from ``seed`` (or keep them as they are) and reset the state."""
        for info in self.spec.state:
            self.state.views[info.name][...] = initial_values(info, seed, self.dtype)
        for info in () if keep_parameters else self.spec.parameters:
            self.parameters.views[info.name][...] = initial_values(info, seed, self.dtype)

    def prepare(self) -> None:
        """Choose algorithms and bind all calls now instead of at the first step (for honest timing)."""
        _ = self.plan.training, self.plan.prediction

    def loss_and_gradients(
        self,
        inputs: NDArray[Any],
        targets: NDArray[Any],
        *,
        scale: float | None = None,
        seed: int = 0,
        step: int = 0,
        shard: int = 0,
        timeline: Timeline = NO_TIMELINE,
        on_ready: OnReady | None = None,
    ) -> StepOutput:
        """One forward and backward pass in training mode; ``gradients`` are overwritten.

        They are ``scale`` (default one over n) times the gradient of the summed loss. Dropout draws from (seed, step,
        shard) and the layer. An empty batch (a shard without samples) gives zeros and changes no state. ``timeline``
        and ``on_ready``: see :class:`ringlet.engines.contract.Replica`.
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
        plan, context = self.plan, self.plan.context
        outputs = self._outputs(num_samples)
        if plan.needs_key:
            context.key = step_key(seed, step, shard)
        context.scale = 1.0 / num_samples if scale is None else float(scale)
        self._load(inputs, targets, outputs)
        for action in plan.forward:
            action()
        timeline.mark("backward")
        self._run_backward(on_ready)
        return StepOutput(context.loss_sum, num_samples, outputs)

    def evaluate(self, inputs: NDArray[Any], targets: NDArray[Any]) -> StepOutput:
        """Loss and outputs in inference mode, in chunks of ``local_batch_size``."""
        inputs, targets = self._check(inputs, targets)
        outputs = self._outputs(len(inputs))
        loss_sum = 0.0
        for part in self._chunks(len(inputs)):
            self._load(inputs[part], targets[part], outputs[part])
            for action in self.plan.evaluation:
                action()
            loss_sum += self.plan.context.loss_sum
        return StepOutput(loss_sum, len(inputs), outputs)

    def predict(self, inputs: NDArray[Any]) -> Floats:
        """Outputs ``(n, *output_shape)`` in inference mode, in chunks of ``local_batch_size``."""
        inputs = self._check_inputs(inputs)
        outputs = self._outputs(len(inputs))
        for part in self._chunks(len(inputs)):
            self._load(inputs[part], inputs[part], outputs[part])
            for action in self.plan.prediction:
                action()
        return outputs

    def _run_backward(self, on_ready: OnReady | None) -> None:
        if on_ready is None:
            for action in self.plan.backward:
                action()
            return
        for actions, ranges in self.plan.backward_parts:
            for action in actions:
                action()
            for start, stop in ranges:
                on_ready(start, stop)

    def _without_samples(self, timeline: Timeline, on_ready: OnReady | None) -> StepOutput:
        timeline.mark("backward")
        self.gradients.flat.fill(0)
        if on_ready is not None:
            on_ready(0, self.gradients.flat.size)
        return StepOutput(0.0, 0, self._outputs(0))

    def _load(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats) -> None:
        context = self.plan.context
        context.inputs, context.targets, context.outputs = inputs, targets, outputs
        context.num_samples = len(inputs)

    def _chunks(self, num_samples: int) -> Iterator[slice]:
        size = self.local_batch_size
        return (slice(start, min(start + size, num_samples)) for start in range(0, num_samples, size))

    def _outputs(self, num_samples: int) -> Floats:
        return np.empty((num_samples, *self.spec.output_shape), self.dtype)

    def _check(self, inputs: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        inputs = self._check_inputs(inputs)
        return inputs, self.plan.context.encoder.check(targets, len(inputs))

    def _check_inputs(self, inputs: NDArray[Any]) -> NDArray[Any]:
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


def _floating(dtype: DTypeLike) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if found not in (np.float32, np.float64):
        raise UsageError(f"dtype is {found}; the native engine computes in float32 or float64")
    return found


def _clear(gradients: Floats) -> None:
    """Zeros in a foreign buffer, whose owner may read it before the first step."""
    if not gradients.flags.writeable:
        raise UsageError("the buffer for the gradients is read-only; give one that can be written")
    gradients.fill(0)


def _positive(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise UsageError(f"{name} is {value!r}; expected an integer of at least 1")
    return int(value)


def _set_threads(kernels: Kernels, threads: int | None) -> None:
    if threads is None:
        return
    set_num_threads = getattr(kernels, "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(_positive("threads", threads))


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(extent) for extent in shape)

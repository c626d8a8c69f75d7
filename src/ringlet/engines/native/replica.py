"""The native engine's replica: runs the plan's lists of calls."""

from __future__ import annotations

from typing import Any, final

from numpy.typing import NDArray

from ringlet.engines.contract import Floats, OnReady, Replica, TrainingPass, positive
from ringlet.engines.native.plan import Plan, Tensors, compile_plan
from ringlet.kernels.contract import Kernels
from ringlet.models.spec import ModelSpec


@final
class NativeReplica(Replica):
    """A network on Ringlet's own kernels.

    The plan is compiled once for ``local_batch_size``; smaller batches run on it with padding lanes. ``options`` are
    those of :class:`~ringlet.engines.contract.Replica`. ``exact`` leaves out convolution algorithms with coarser
    rounding. With ``tuning="measured"`` the first use of training and of inference may measure convolution algorithms,
    which then depend on the machine and its number of threads; with ``"rule"`` they follow from the shapes alone: see
    :mod:`ringlet.engines.native.tuning`.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        threads: int | None = None,
        exact: bool = False,
        tuning: str = "measured",
        **options: Any,
    ) -> None:
        super().__init__(spec, **options)
        _set_threads(self.kernels, threads)
        tensors = Tensors(self.parameters, self.gradients, self.state)
        self.plan: Plan = compile_plan(
            spec,
            self.local_batch_size,
            self.compute_dtype,
            self.loss,
            self.kernels.for_activations(self.compute_dtype),
            tensors,
            exact=exact,
            tuning=tuning,
        )

    def prepare(self) -> None:
        """Choose algorithms and bind all calls now instead of at the first step (for honest timing)."""
        _ = self.plan.forward, self.plan.backward, self.plan.prediction

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        plan, context = self.plan, self.plan.context
        if plan.needs_key:
            context.key = how.key
        context.scale = how.scale
        self._load(inputs, targets, outputs)
        for action in plan.forward:
            action()
        how.timeline.mark("backward")
        self._run_backward(how.on_ready)
        return context.loss_sum

    def _evaluate(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats) -> float:
        self._load(inputs, targets, outputs)
        for action in self.plan.evaluation:
            action()
        return self.plan.context.loss_sum

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        self._load(inputs, inputs, outputs)
        for action in self.plan.prediction:
            action()

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

    def _load(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats) -> None:
        context = self.plan.context
        context.inputs, context.targets, context.outputs = inputs, targets, outputs
        context.num_samples = len(inputs)


def _set_threads(kernels: Kernels, threads: int | None) -> None:
    if threads is None:
        return
    set_num_threads = getattr(kernels, "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(positive("threads", threads))

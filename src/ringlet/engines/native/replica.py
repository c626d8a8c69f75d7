"""The native engine's replica: runs the plan's lists of calls."""

from __future__ import annotations

from functools import partial
from typing import Any, final

from numpy.typing import NDArray

from ringlet.engines.contract import Floats, OnReady, Replica, TrainingPass, positive
from ringlet.engines.native.plan import Plan, Tensors, compile_plan
from ringlet.engines.threads import AdaptiveThreads
from ringlet.kernels.contract import Kernels
from ringlet.models.spec import ModelSpec

_MOST_SMALLER_PLANS = 4
"""Of batches to predict that are much smaller than expected."""


@final
class NativeReplica(Replica):
    """A network on Ringlet's own kernels.

    The plan is compiled once for ``local_batch_size``; smaller batches run on it with padding lanes, but much smaller
    ones to predict get plans of their own. ``options`` are those of :class:`~ringlet.engines.contract.Replica`.
    ``exact`` leaves out convolution algorithms with coarser rounding. With ``tuning="measured"`` the first use of
    training and of inference may measure convolution algorithms, which then depend on the machine and its number of
    threads; with ``"rule"`` they follow from the shapes alone: see :mod:`ringlet.engines.native.tuning`. Passes in
    inference mode use one of the threads where that is faster (:mod:`ringlet.engines.threads`).
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
        self._compile = partial(
            compile_plan,
            spec,
            dtype=self.compute_dtype,
            loss=self.loss,
            kernels=self.kernels.for_activations(self.compute_dtype),
            tensors=Tensors(self.parameters, self.gradients, self.state),
            class_weights=self.encoder.class_weights,
            exact=exact,
            tuning=tuning,
        )
        self.plan: Plan = self._compile(local_batch_size=self.local_batch_size)
        self._smaller_plans: dict[int, Plan] = {}
        self._threads_to_evaluate, self._threads_to_predict = (AdaptiveThreads(self.kernels) for _ in range(2))

    def _apply_freeze(self) -> None:
        """Another plan: what is frozen has no backward pass."""
        self.plan = self._compile(local_batch_size=self.local_batch_size, frozen=self.frozen)

    def prepare(self) -> None:
        """Choose algorithms and bind all calls now instead of at the first step (for honest timing)."""
        _ = self.plan.forward, self.plan.backward, self.plan.prediction

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        plan, context = self.plan, self.plan.context
        if plan.needs_key:
            context.key = how.key
        context.scale = how.scale
        self._clear_frozen()  # nothing of the plan writes there, but others may have
        _load(plan, inputs, targets, outputs, how.weights)
        for action in plan.forward:
            action()
        how.timeline.mark("backward")
        self._run_backward(how.on_ready)
        return context.loss_sum

    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        _load(self.plan, inputs, targets, outputs, weights)
        with self._threads_to_evaluate:
            for action in self.plan.evaluation:
                action()
        return self.plan.context.loss_sum

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        plan = self._prediction_plan(len(inputs))
        _load(plan, inputs, inputs, outputs)
        with self._threads_to_predict:
            for action in plan.prediction:
                action()

    def _prediction_plan(self, num_samples: int) -> Plan:
        """That of ``local_batch_size``, unless more than half of it would be padding. The results are the same."""
        if 2 * num_samples > self.local_batch_size or self.compute_dtype != self.dtype:
            return self.plan
        if num_samples not in self._smaller_plans:
            if len(self._smaller_plans) == _MOST_SMALLER_PLANS:
                self._smaller_plans.pop(next(iter(self._smaller_plans)))
            self._smaller_plans[num_samples] = self._compile(local_batch_size=num_samples)
        return self._smaller_plans[num_samples]

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


def _load(
    plan: Plan,
    inputs: NDArray[Any],
    targets: NDArray[Any],
    outputs: Floats,
    weights: NDArray[Any] | None = None,
) -> None:
    context = plan.context
    context.inputs, context.targets, context.outputs, context.weights = inputs, targets, outputs, weights
    context.num_samples = len(inputs)


def _set_threads(kernels: Kernels, threads: int | None) -> None:
    if threads is None:
        return
    set_num_threads = getattr(kernels, "set_num_threads", None)
    if set_num_threads is not None:
        set_num_threads(positive("threads", threads))

"""The replica on PyTorch."""

from __future__ import annotations

from functools import partial
from typing import Any, final

import torch
from numpy.typing import NDArray
from torch import Tensor

from ringlet.engines.contract import Floats, Replica, TrainingPass, positive
from ringlet.engines.dropout import DropoutMasks
from ringlet.engines.torch.devices import make_gradients, make_memory
from ringlet.engines.torch.losses import loss_function
from ringlet.engines.torch.program import compile_forward
from ringlet.models.spec import ModelSpec


@final
class TorchReplica(Replica):
    """A network on PyTorch's kernels.

    ``device`` is PyTorch's name of where to compute, such as ``cpu`` or ``cuda:1``. On the processor parameters,
    gradients and state are views of the flat buffers; for a GPU they are copied before and after every pass.
    ``threads`` sets PyTorch's number of threads for the whole process. ``exact`` forbids the coarse float32 (TF32) of
    some GPUs. In bfloat16 passes are PyTorch's automatic mixed precision, losses excepted. ``options`` are those of
    :class:`~ringlet.engines.contract.Replica`; its ``kernels`` draw the masks of dropout.
    """

    def __init__(
        self, spec: ModelSpec, *, threads: int | None = None, exact: bool = False, device: str = "cpu", **options: Any
    ) -> None:
        super().__init__(spec, **options)
        if threads is not None:
            torch.set_num_threads(positive("threads", threads))
        self.device = torch.device(device)
        if exact and self.device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self._graph = spec
        self._dtype = torch.from_numpy(self.parameters.flat[:0]).dtype
        mixed = self.compute_dtype != self.dtype
        self._precision = partial(torch.autocast, self.device.type, torch.bfloat16, enabled=mixed)
        self._forward = compile_forward(spec, self.head.prediction, mixed=mixed)
        self._mixed = mixed
        self._loss = loss_function(self.head)
        self._masks = DropoutMasks(spec, self.dtype, self.kernels)
        self._memory = make_memory(self.parameters, self.state, self.device)
        self._gradients = make_gradients(spec, self._memory.parameters, self.gradients, self.device)

    def prepare(self) -> None:
        """Nothing is compiled."""

    def _apply_freeze(self) -> None:
        """Autograd leaves out what needs no gradient."""
        nodes = self._graph.frozen_nodes(self.frozen)
        self._forward = compile_forward(self._graph, self.head.prediction, mixed=self._mixed, frozen=nodes)
        for info, parameter in zip(self.spec.parameters, self._memory.parameters, strict=True):
            parameter.requires_grad_(info.name not in self.frozen)

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        memory = self._memory
        memory.fetch()
        masks = self._masks.draw(how.key, len(inputs)) if self._masks.nodes else ()
        factors = [self._tensor(mask) for mask in masks]
        with self._precision():
            prediction, result = self._forward(self._images(inputs), memory.parameters, memory.state, factors, True)
        loss = self._loss(prediction.to(self._dtype), *self._arranged(targets, how.weights))
        torch.from_numpy(outputs).copy_(result.detach())
        loss_sum = loss.item()
        how.timeline.mark("backward")
        del prediction, result
        self._gradients.compute(loss, how.scale, how.on_ready)
        memory.keep_state()
        return loss_sum

    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        with torch.inference_mode():
            prediction = self._infer(inputs, outputs)
            return self._loss(prediction, *self._arranged(targets, weights)).item()

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        with torch.inference_mode():
            self._infer(inputs, outputs)

    def _infer(self, inputs: NDArray[Any], outputs: Floats) -> Tensor:
        """Fills ``outputs``; gives what the loss reads."""
        memory = self._memory
        memory.fetch()
        with self._precision():
            prediction, result = self._forward(self._images(inputs), memory.parameters, memory.state, (), False)
        torch.from_numpy(outputs).copy_(result)
        return prediction.to(self._dtype)

    def _arranged(self, targets: NDArray[Any], weights: NDArray[Any] | None) -> tuple[Tensor, Tensor | None]:
        """Targets, and their weights if any, as the loss wants them."""
        found = self.encoder.weights(targets, weights)
        return self._tensor(self.encoder.arranged(targets)), None if found is None else self._tensor(found)

    def _images(self, inputs: NDArray[Any]) -> Tensor:
        return self._tensor(inputs).to(self._dtype)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        """On the device; there without a copy, if that is the processor. PyTorch knows no read-only memory."""
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self.device)

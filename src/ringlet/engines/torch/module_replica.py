"""The replica of a PyTorch module: the module itself computes, its parameters are views of the flat buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringlet.engines.contract import Floats, TrainingPass, positive
from ringlet.engines.modules import Arrays, ModuleReplica, OwnLoss, loss_title, mean_with_weights
from ringlet.engines.torch.devices import make_memory
from ringlet.engines.torch.losses import loss_function
from ringlet.engines.torch.module_spec import call_module, named_buffers, seeded, set_training
from ringlet.errors import SpecError, UsageError
from ringlet.models.module_spec import ModuleSpec

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": partial(torch.softmax, dim=1),
    "sigmoid": torch.sigmoid,
    "identity": lambda outputs: outputs,
}


@final
class TorchModuleReplica(ModuleReplica):
    """A network that is ``spec.module``.

    What optimizers write into the flat parameters is what the module holds, and so is its floating state; on a GPU both
    are copied before and after a pass. Gradients are accumulated straight into the flat buffer and reported as one
    range at the end: a program's own code may take another path through a module on every rank. Random operations draw
    from PyTorch's generator, which is seeded for each pass and put back. Options are those of
    :class:`~ringlet.engines.torch.replica.TorchReplica`.
    """

    def __init__(
        self,
        spec: ModuleSpec,
        *,
        threads: int | None = None,
        exact: bool = False,
        device: str = "cpu",
        own_loss: OwnLoss | None = None,
        **options: Any,
    ) -> None:
        module: nn.Module = spec.module
        self.module = module
        super().__init__(spec, _first_values(spec), own_loss, **options)
        if threads is not None:
            torch.set_num_threads(positive("threads", threads))
        self.device = torch.device(device)
        if exact and self.device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self._dtype = torch.from_numpy(self.parameters.flat[:0]).dtype
        mixed = self.compute_dtype != self.dtype
        self._precision = partial(torch.autocast, self.device.type, torch.bfloat16, enabled=mixed)
        self._activation = _ACTIVATIONS[spec.activation]
        self._loss = self._own_sum if own_loss is not None else loss_function(self.head)
        self._modes = [(part, part.training) for part in module.modules()]
        self._mode: bool | None = None
        self._adopt()

    def _adopt(self) -> None:
        """Let the module's tensors be views of the buffers. It keeps its own objects, so ties and references stay."""
        module, spec = self.module, self.description
        module.to(self.device)
        self._memory = make_memory(self.parameters, self.state, self.device)
        own = dict(module.named_parameters())
        self._own = [own[info.name] for info in spec.parameters]
        for parameter, view in zip(self._own, self._memory.parameters, strict=True):
            parameter.data, parameter.grad = view.detach(), None
        buffers, kinds = named_buffers(module), {tensor.name: tensor.kind for tensor in spec.tensors}
        names = [info.name for info in spec.state]
        self._statistics = [
            (*buffers[name], view)
            for name, view in zip(names, self._memory.state, strict=True)
            if kinds[name] == "state"
        ]
        for _, _, buffer, view in self._statistics:
            buffer.data = view
        self._counts = [
            _Count(name, *buffers[name], view)
            for name, view in zip(names, self._memory.state, strict=True)
            if kinds[name] == "count"
        ]
        self._constants = {
            name: own[name] if name in own else buffers[name][2] for name, kind in kinds.items() if kind == "constant"
        }
        self._fixed = [(name, *buffers[name]) for name in self._constants if name in buffers]
        self._versions = [tensor._version for *_, tensor in self._fixed]
        host = torch.from_numpy(self.gradients.flat)
        self._flat_gradients = host if self.device.type == "cpu" else torch.zeros_like(host, device=self.device)
        sizes = [prod(parameter.shape) for parameter in self._own]
        parts = torch.split(self._flat_gradients, sizes)
        self._gradients = [part.view(own.shape) for part, own in zip(parts, self._own, strict=True)]

    def prepare(self) -> None:
        """Nothing is compiled."""

    def kept(self) -> Arrays:
        """See :class:`~ringlet.engines.modules.ModuleReplica`."""
        constants = {name: _array(tensor) for name, tensor in self._constants.items()}
        return constants | {count.name: _array(count.base) for count in self._counts}

    def take_kept(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """See :class:`~ringlet.engines.modules.ModuleReplica`."""
        with torch.no_grad():
            for name, tensor in self._constants.items():
                tensor.copy_(torch.from_numpy(np.array(tensors[name])))
            for count in self._counts:
                count.base.copy_(torch.from_numpy(np.array(tensors[count.name])))
        self._versions = [tensor._version for *_, tensor in self._fixed]

    def publish(self) -> None:
        """The module holds all but what a GPU has copies of, and counts."""
        self._memory.fetch()
        for count in self._counts:
            count.load()
        for part, mode in self._modes:
            part.training = mode
        self._mode = None

    def _train(self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, how: TrainingPass) -> float:
        self._begin(training=True)
        with seeded(how.key):
            with self._precision():
                raw = self._call(inputs)
            loss = self._loss_of(raw, targets, outputs, how.weights)
            loss_sum = loss.item()
            how.timeline.mark("backward")
            self._backward(loss, how.scale)
        self._end_training()
        if how.on_ready is not None:
            how.on_ready(0, self.gradients.flat.size)
        return loss_sum

    def _evaluate(
        self, inputs: NDArray[Any], targets: NDArray[Any], outputs: Floats, weights: NDArray[Any] | None = None
    ) -> float:
        return float(self._infer(inputs, lambda raw: self._loss_of(raw, targets, outputs, weights)))

    def _predict(self, inputs: NDArray[Any], outputs: Floats) -> None:
        self._infer(inputs, lambda raw: self._fill(raw, outputs))

    # -- a pass --------------------------------------------------------------------------------------------------------
    def _begin(self, *, training: bool) -> None:
        self._forget_first()
        self._memory.fetch()
        for count in self._counts:
            count.load()
        if self._mode is not training or self.module.training is not training:
            set_training(self._modes, training=training)
            self._mode = training

    def _infer(self, inputs: NDArray[Any], finish: Callable[[Tensor], Tensor]) -> Tensor:
        """Without a graph, and not in inference mode: tensors that a module keeps may be used in training later."""
        self._begin(training=False)
        with torch.no_grad(), self._precision():
            raw = self._call(inputs)
        with torch.no_grad():
            return finish(raw)

    def _call(self, inputs: NDArray[Any]) -> Tensor:
        """Of a copy of the inputs: a module may write to what it is given."""
        samples = torch.tensor(inputs, dtype=self._dtype, device=self.device)
        raw = call_module(self.module, samples)
        if tuple(raw.shape[1:]) != self.spec.output_shape:
            raise SpecError(
                f"module '{self.spec.name}' gives {tuple(raw.shape[1:])} for a sample, and gave "
                f"{self.spec.output_shape} when training began: expected the same shape for every batch"
            )
        return raw

    def _fill(self, raw: Tensor, outputs: Floats) -> Tensor:
        """Fills ``outputs``; gives them as the loss may read them."""
        result = self._activation(raw.to(self._dtype))
        torch.from_numpy(outputs).copy_(result.detach())
        return result

    def _loss_of(self, raw: Tensor, targets: NDArray[Any], outputs: Floats, of_samples: NDArray[Any] | None) -> Tensor:
        """The summed loss; ``outputs`` are filled."""
        wanted = self._copied(self.encoder.arranged(targets))
        found = self.encoder.weights(targets, of_samples)
        result = self._fill(raw, outputs)
        prediction = raw.to(self._dtype) if self.head.prediction == "raw" else result
        return self._loss(prediction, wanted, None if found is None else self._copied(found))

    def _copied(self, array: NDArray[Any]) -> Tensor:
        """On the device, in memory that a program may write to."""
        return torch.from_numpy(np.array(array)).to(self.device)

    def _own_sum(self, raw: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Of a loss of the program: a mean over the samples, or one value for each of them, added up in float64."""
        assert self._own_loss is not None
        value = self._own_loss(raw, targets)
        if not isinstance(value, Tensor) or (value.ndim and len(value) != len(raw)):
            got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(
                f"the loss gives {got} for {len(raw)} samples: expected one value, their mean, or one for each sample"
            )
        if value.ndim:
            values = value.flatten(1).mean(1) if value.ndim > 1 else value
            return (values if weights is None else values * weights).sum(dtype=torch.float64)
        if weights is not None:
            raise mean_with_weights(loss_title(self._own_loss))
        is_sum = getattr(self._own_loss, "reduction", "mean") == "sum"
        return value.double() if is_sum else value.double() * len(raw)

    def _backward(self, loss: Tensor, scale: float) -> None:
        """Gradients go straight to their places, which hold zeros; what the loss does not depend on keeps them."""
        self._flat_gradients.zero_()
        if not loss.requires_grad:
            return
        for parameter, place in zip(self._own, self._gradients, strict=True):
            parameter.grad = place
        try:
            (loss * scale).backward()  # type: ignore[no-untyped-call]  # a factor as argument makes it import SymPy
            for parameter, place in zip(self._own, self._gradients, strict=True):
                if parameter.grad is not place and parameter.grad is not None:
                    place.copy_(parameter.grad)
        finally:
            for parameter in self._own:
                parameter.grad = None
        if self._flat_gradients.device.type != "cpu":
            torch.from_numpy(self.gradients.flat).copy_(self._flat_gradients)

    def _end_training(self) -> None:
        """Bring what the pass has made of the state into the flat buffer; a module may have put new tensors there."""
        for owner, leaf, buffer, view in self._statistics:
            current = owner._buffers[leaf]
            if current is not buffer:
                assert current is not None
                view.copy_(current.detach())
                owner._buffers[leaf] = buffer
        for count in self._counts:
            count.store()
        self._memory.keep_state()
        for (name, owner, leaf, tensor), version in zip(self._fixed, self._versions, strict=True):
            if owner._buffers[leaf] is not tensor or tensor._version != version:
                raise SpecError(
                    f"module '{self.spec.name}' has changed its buffer '{name}', which its first pass left alone: what "
                    "training changes must be written in every training pass, or ranks could not agree on it"
                )


@final
class _Count:
    """A buffer of whole numbers (or truth values) that training changes; ``view`` is its part of the flat state."""

    def __init__(self, name: str, owner: nn.Module, leaf: str, buffer: Tensor, view: Tensor) -> None:
        self.name, self.owner, self.leaf, self.buffer, self.view = name, owner, leaf, buffer, view
        self.base = buffer.clone()

    def load(self) -> None:
        """Let the buffer hold what the flat state says."""
        self.buffer.copy_(self.base.long() + self.view.round().long())

    def store(self) -> None:
        """Let the flat state say what the buffer holds."""
        current = self.owner._buffers[self.leaf]
        assert current is not None
        self.view.copy_(current.long() - self.base.long())
        self.owner._buffers[self.leaf] = self.buffer


def _first_values(spec: ModuleSpec) -> Arrays:
    """The module's own parameters and statistics, in the memory that they have had so far."""
    named = {**dict(spec.module.named_parameters()), **dict(spec.module.named_buffers())}
    wanted = [tensor.name for tensor in spec.tensors if tensor.kind in ("parameter", "state")]
    return {name: named[name].detach().cpu().numpy() for name in wanted}


def _array(tensor: Tensor) -> NDArray[Any]:
    """Its own memory where that is contiguous: what is kept does not change while it is written to a file."""
    return tensor.detach().cpu().contiguous().numpy()

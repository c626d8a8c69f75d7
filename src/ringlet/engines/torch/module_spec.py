"""What must be known of a PyTorch module before it trains: its tensors by kind, and what comes out for real samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringlet.errors import SpecError
from ringlet.models.module_spec import Activation, Kind, ModuleSpec, TensorInfo, dtype_name
from ringlet.operations.attributes import Shape

Choose = Callable[[Shape, bool | None], Activation]
"""The activation for outputs of a shape; they are known to be probabilities, known not to be, or not known."""

_PROBABILITIES = ("SoftmaxBackward", "SigmoidBackward")
_VIEWS = ("View", "Squeeze", "Unsqueeze", "Permute", "Transpose", "T", "Reshape", "UnsafeView", "Select", "Slice")
"""Steps that only arrange numbers, as autograd calls them."""


def describe_module(module: nn.Module, inputs: NDArray[Any], choose: Choose) -> ModuleSpec:
    """Look at a module and pass a few samples ``(n, *input_shape)`` through it; it is left as it was."""
    name = type(module).__name__
    _check_module(module, name)
    samples = torch.from_numpy(inputs.copy())
    parameters = list(_parameters(module, samples.dtype, name))
    probe = _probe(module, samples, name)
    tensors = [*parameters, *_buffers(module, samples.dtype, probe.changed, name)]
    if not any(tensor.kind == "parameter" for tensor in tensors):
        raise SpecError(f"module '{name}' has no parameters that require gradients: there is nothing to train")
    return ModuleSpec(
        name,
        "torch",
        tuple(inputs.shape[1:]),
        probe.output_shape,
        choose(probe.output_shape, probe.gives_probabilities),
        tuple(tensors),
        probe.num_kept,
        module,
    )


Buffers = dict[str, tuple[nn.Module, str, Tensor]]
"""By path: the module that owns a buffer, its name there, and the tensor."""


def named_buffers(module: nn.Module) -> Buffers:
    """All buffers, those that are no part of the state dict as well."""
    owners = dict(module.named_modules())
    found = {}
    for name, tensor in module.named_buffers():
        owner, _, leaf = name.rpartition(".")
        found[name] = owners[owner], leaf, tensor
    return found


def call_module(module: nn.Module, inputs: Tensor) -> Tensor:
    """What a module gives, ``(n, …)`` with at least one axis beside the samples; anything but a tensor is refused."""
    outputs = module(inputs)
    if not isinstance(outputs, Tensor):
        raise SpecError(
            f"module '{type(module).__name__}' gives a {type(outputs).__name__}, expected one tensor: wrap it in a "
            "module that returns the tensor to learn from (of a dict its 'out' or 'logits', say)"
        )
    if outputs.ndim == 0 or len(outputs) != len(inputs):
        raise SpecError(
            f"module '{type(module).__name__}' gives a tensor of shape {tuple(outputs.shape)} for {len(inputs)} "
            "samples: expected the samples on the first axis"
        )
    return outputs.unsqueeze(1) if outputs.ndim == 1 else outputs


@contextmanager
def seeded(key: int) -> Iterator[None]:
    """Within, PyTorch draws from ``key``; what its generator would have drawn next, it draws afterwards."""
    before = torch.get_rng_state()
    torch.manual_seed(key)
    try:
        yield
    finally:
        torch.set_rng_state(before)


# -- tensors by kind ---------------------------------------------------------------------------------------------------
def _check_module(module: nn.Module, name: str) -> None:
    for path, part in module.named_modules():
        owner = f"'{path}' ({type(part).__name__})" if path else f"'{name}'"
        lazy = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if any(nn.parameter.is_lazy(tensor) for tensor in lazy):
            raise SpecError(
                f"module '{name}' is lazy: {owner} does not know its shape yet. Pass a batch through it first: "
                "module(torch.zeros(1, …))"
            )
        if any(tensor.is_meta for tensor in lazy):
            raise SpecError(f"module '{name}' has tensors without memory ({owner} is on device 'meta'): fill it first")
        if type(part).get_extra_state is not nn.Module.get_extra_state:
            raise SpecError(
                f"module '{name}': {owner} has a state of its own (get_extra_state), which cannot be kept without "
                "pickle. Register it as a buffer"
            )


def _parameters(module: nn.Module, dtype: torch.dtype, name: str) -> Iterator[TensorInfo]:
    for path, parameter in module.named_parameters():
        if not parameter.requires_grad or not parameter.numel():
            yield _info(path, parameter, "constant", name)
            continue
        if parameter.dtype != dtype:
            raise SpecError(
                f"parameter '{path}' of module '{name}' is of {parameter.dtype}, the run computes in {dtype}: give "
                "module.float(), or dtype='float64' for one of float64 (dtype='bfloat16' keeps weights in float32)"
            )
        yield _info(path, parameter, "parameter", name)


def _buffers(module: nn.Module, dtype: torch.dtype, changed: set[str], name: str) -> Iterator[TensorInfo]:
    found = named_buffers(module)
    counts = sorted((str(found[path][2].dtype), path) for path in changed if not found[path][2].is_floating_point())
    for path, (_, _, buffer) in found.items():
        if path not in changed:
            yield _info(path, buffer, "constant", name)
        elif buffer.is_floating_point():
            if buffer.dtype != dtype:
                raise SpecError(
                    f"buffer '{path}' of module '{name}' changes in training and is of {buffer.dtype}; a run in "
                    f"{dtype} keeps such statistics in {dtype}: convert the buffer"
                )
            yield _info(path, buffer, "state", name)
    for _, path in counts:  # those of one type side by side
        yield _info(path, found[path][2], "count", name)


def _info(path: str, tensor: Tensor, kind: Kind, name: str) -> TensorInfo:
    dtype = dtype_name(str(tensor.dtype).removeprefix("torch."))
    if not dtype or tensor.layout != torch.strided:
        raise SpecError(
            f"tensor '{path}' of module '{name}' is of {tensor.dtype} ({tensor.layout}), which cannot be kept in a "
            "checkpoint: convert it, to float32 say"
        )
    return TensorInfo(path, tuple(tensor.shape), dtype, kind)


# -- a first pass ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Probe:
    output_shape: Shape
    changed: set[str]
    """Names of the buffers that a training pass writes."""
    gives_probabilities: bool
    num_kept: int
    """Numbers that a training pass keeps for each sample."""


def _probe(module: nn.Module, samples: Tensor, name: str) -> _Probe:
    """A training pass and an inference pass over samples."""
    original = named_buffers(module)
    before = {path: (tensor._version, tensor.clone()) for path, (_, _, tensor) in original.items()}
    modes = [(part, part.training) for part in module.modules()]
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes() // max(tensor.element_size(), 1)
        return tensor

    try:
        with seeded(0), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            set_training(modes, training=True)
            outputs = call_module(module, samples.clone())
            changed = _changed(original, named_buffers(module), before)
            set_training(modes, training=False)
            with torch.no_grad():
                inferred = call_module(module, samples.clone())
    except SpecError:
        raise
    except Exception as error:
        raise SpecError(
            f"module '{name}' cannot take the data, inputs of shape {tuple(samples.shape)} and {samples.dtype} "
            f"({type(error).__name__}: {str(error)[:300]})"
        ) from error
    finally:
        for path, (owner, leaf, tensor) in original.items():
            owner._buffers[leaf] = tensor
            with torch.no_grad():
                tensor.copy_(before[path][1])
        for part, mode in modes:
            part.training = mode
    if inferred.shape != outputs.shape:
        raise SpecError(
            f"module '{name}' gives {tuple(outputs.shape[1:])} for a sample in training and "
            f"{tuple(inferred.shape[1:])} in inference: expected the same"
        )
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    num_kept = sum(size for place, size in saved.items() if place not in weights)
    shape = tuple(outputs.shape[1:])
    return _Probe(shape, changed, _ends_in_probabilities(outputs), -(-num_kept // len(samples)))


def _changed(original: Buffers, after: Buffers, before: dict[str, tuple[int, Tensor]]) -> set[str]:
    """The buffers that a pass has replaced or written. Kernels of statistics do not count as writers: values tell.

    Statistics that happen to be as before are found by those of the same layer that are not.
    """
    found = {
        path
        for path, (version, values) in before.items()
        if after[path][2] is not original[path][2]
        or after[path][2]._version != version
        or not torch.equal(after[path][2], values)
    }
    writers = {id(original[path][0]) for path in found if isinstance(original[path][0], nn.modules.batchnorm._NormBase)}
    return found | {path for path, (owner, _, _) in original.items() if id(owner) in writers}


def set_training(modes: list[tuple[nn.Module, bool]], *, training: bool) -> None:
    """Modes of all parts for a pass. Parts that the program has put into inference mode stay in it.

    Unless all of the module was in that mode: a network that was only evaluated so far is to learn all the same.
    """
    whole = modes[0][1]
    for part, mode in modes:
        part.training = training and (mode or not whole)


def _ends_in_probabilities(outputs: Tensor) -> bool:
    """Whether the last thing that was computed is a softmax or a sigmoid."""
    step: Any = outputs.grad_fn
    while step is not None:
        kind = step.name()
        if kind.startswith(_PROBABILITIES):
            return True
        if kind.removesuffix("0").removesuffix("Backward") not in _VIEWS:
            return False
        step = step.next_functions[0][0] if step.next_functions else None
    return False

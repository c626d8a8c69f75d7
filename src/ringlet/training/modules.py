"""Networks that a program brings as objects, PyTorch modules and Keras models: how they become part of a run.

Every rank constructs its own, with its own random numbers; all begin with what rank 0's holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.config import RunConfig
from ringlet.data import Dataset
from ringlet.engines.contract import FlatTensors, Floats, Replica
from ringlet.engines.modules import ModuleReplica, OwnLoss, loss_title
from ringlet.errors import ConfigError, ModelFileError, SpecError
from ringlet.guards.agreement import check_same
from ringlet.io.disk import explain, replacing
from ringlet.io.safetensors import write_tensors
from ringlet.losses import GivenLoss
from ringlet.models.files import KEY_MODULE
from ringlet.models.module_spec import Activation, Framework, ModuleSpec
from ringlet.models.spec import Shape

Outputs = Literal["logits", "probabilities"]
_PROBE_SAMPLES = 2
"""Batch normalisation needs two."""


@dataclass(frozen=True)
class GivenModule:
    """A module, what its program says of its outputs (None: look), and the program's own loss, if it has one."""

    module: Any
    framework: Framework
    outputs: Outputs | None = None
    loss: OwnLoss | None = None

    @property
    def stand_in(self) -> GivenLoss:
        """What the configuration is told of the program's own loss."""
        assert self.loss is not None, "there is nothing to stand for"
        return GivenLoss(title_given=loss_title(self.loss))

    @property
    def name(self) -> str:
        """What the run calls it: the name of its class, or that of a Keras model."""
        if self.framework == "torch":
            return type(self.module).__name__
        from ringlet.engines.keras.model_spec import network_name

        return network_name(self.module)


def framework_of(model: object) -> Framework | None:
    """The framework that an object is a network of; None for anything else. Nothing is imported for that."""
    keras, torch = sys.modules.get("keras"), sys.modules.get("torch")
    if keras is not None and isinstance(model, keras.Model):  # on PyTorch it is a module too
        return "keras"
    return "torch" if torch is not None and isinstance(model, torch.nn.Module) else None


def check_options(given: GivenModule, config: RunConfig) -> None:
    """Refuse options that mean a network of Ringlet's own."""
    if given.outputs not in (None, "logits", "probabilities"):
        raise ConfigError(f"outputs = {given.outputs!r}: expected 'logits' or 'probabilities'")
    if config.engine.name != given.framework:
        raise ConfigError(
            f"engine = {config.engine.name}, but '{given.name}' is a module of {given.framework}, which trains on "
            f"engine {given.framework}: leave engine out"
        )
    if config.model.weights is not None:
        raise ConfigError(
            f"weights = {config.model.weights}: a module brings its own weights. Load them before it is given to the "
            "Trainer"
        )
    parameters = getattr(given.loss, "parameters", None)
    if given.framework == "torch" and callable(parameters) and any(value.requires_grad for value in parameters()):
        raise ConfigError(
            "the loss has parameters to learn: make it part of the module, or they would stay as they are"
        )


def describe(given: GivenModule, config: RunConfig, dataset: Dataset) -> ModuleSpec:
    """The description of a module for a data set, of whose first samples it computes outputs."""
    inputs, _ = dataset.train.read(np.arange(_PROBE_SAMPLES) % len(dataset.train))
    samples = dataset.normalization.apply(inputs, config.training.parameter_dtype)
    choose = _activation_chooser(given, dataset)
    if given.framework == "keras":
        from ringlet.engines.keras.model_spec import describe_model

        return describe_model(given.module, samples, choose)
    from ringlet.engines.torch.module_spec import describe_module

    return describe_module(given.module, samples, choose)


def _activation_chooser(given: GivenModule, dataset: Dataset) -> Callable[[Shape, bool | None], Activation]:
    def choose(output_shape: Shape, is_probability: bool | None) -> Activation:
        task: str = dataset.task
        if task == "regression":
            return "identity"
        if given.outputs is None and is_probability is None:
            raise SpecError(
                f"whether the outputs of '{given.name}' are logits or probabilities cannot be seen: give "
                "outputs='logits' or outputs='probabilities' to the Trainer"
            )
        if is_probability if given.outputs is None else given.outputs == "probabilities":
            return "identity"
        return "sigmoid" if output_shape[0] == 1 or task == "multilabel" else "softmax"

    return choose


def remarks(spec: ModuleSpec) -> list[str]:
    """What a run says of its module."""
    meant = {
        "softmax": "logits (predictions and metrics take their softmax)",
        "sigmoid": "logits (predictions and metrics take their sigmoid)",
        "identity": "taken as they are",
    }
    frozen = sum(tensor.size for tensor in spec.tensors if tensor.kind == "constant")
    more = f"; {frozen:,} numbers are not trained" if frozen else ""
    return [
        f"network '{spec.name}': a module of {spec.framework} that begins with its own weights, those of the first "
        f"worker; its outputs are {meant[spec.activation]}{more}"
    ]


def check_same_network(comm: Communicator, spec: ModuleSpec) -> None:
    """Refuse ranks whose modules differ in more than values; every rank must call."""
    if comm.size == 1:
        return
    facts = {"network": f"{spec.name} of {spec.framework}, {spec.output_shape} outputs, {spec.activation}"}
    facts |= {f"tensor '{own.name}'": f"{own.kind} {own.shape} of {own.dtype}" for own in spec.tensors}
    check_same(comm, facts)


# -- tensors beside the flat buffers -----------------------------------------------------------------------------------
def share_kept(replica: Replica, comm: Communicator) -> None:
    """Let all ranks hold what rank 0's module has beside parameters and state; every rank must call."""
    if not isinstance(replica, ModuleReplica) or comm.size == 1:
        return
    infos = replica.description.kept
    own = replica.kept() if comm.rank == 0 else {}
    told = comm.broadcast_bytes(b"".join(own[info.name].tobytes() for info in infos) if comm.rank == 0 else None)
    if comm.rank == 0:
        return
    found, place = {}, 0
    for info in infos:
        dtype = np.dtype(info.dtype)
        found[info.name] = np.frombuffer(told, dtype, info.size, place).reshape(info.shape)
        place += info.size * dtype.itemsize
    replica.take_kept(found)


def saved_tensors(replica: Replica, values: Floats) -> Mapping[str, NDArray[Any]]:
    """All tensors by name, of flat ``values``: parameters, then state."""
    if isinstance(replica, ModuleReplica):
        return replica.saved(values)
    return FlatTensors.allocate((*replica.spec.parameters, *replica.spec.state), values.dtype, values).views


def restored_values(replica: Replica, tensors: Mapping[str, NDArray[Any]]) -> FlatTensors:
    """The inverse; a module also takes over what it keeps. Gives flat values with their names."""
    infos = (*replica.spec.parameters, *replica.spec.state)
    if isinstance(replica, ModuleReplica):
        return FlatTensors.allocate(infos, replica.dtype, replica.taken(tensors))
    flat = FlatTensors.allocate(infos, next(iter(tensors.values())).dtype)
    for name, view in flat.views.items():
        view[...] = tensors[name]
    return flat


def save_module(path: Path, replica: ModuleReplica, metadata: Mapping[str, str]) -> None:
    """Write the weights by the module's own names, so that it can load them without Ringlet.

    A .safetensors file has the state dict of a PyTorch module, or the variables of a Keras model by path; a Keras model
    also writes .weights.h5 and .keras files.
    """
    replica.publish()
    module, spec = replica.description.module, replica.description
    name = path.name.lower()
    if spec.framework == "keras" and name.endswith((".weights.h5", ".keras")):
        if name.endswith(".keras"):
            _write(path, module.save, ending=".keras")
        else:
            _write(path, module.save_weights, ending=".weights.h5")
        return
    if path.suffix.lower() != ".safetensors":
        known = ".safetensors" + (", .weights.h5 or .keras" if spec.framework == "keras" else "")
        raise ModelFileError(f"cannot write '{path}': the weights of a module of {spec.framework} go to {known}")
    arrays = _state_dict(replica)
    about = {key: value for key, value in metadata.items() if key != "format"} | {KEY_MODULE: spec.to_json()}
    _write(path, lambda draft: _write_tensors(draft, arrays, about))


def _state_dict(replica: ModuleReplica) -> dict[str, NDArray[Any]]:
    spec = replica.description
    if spec.framework == "keras":
        return dict(replica.saved(np.concatenate([replica.parameters.flat, replica.state.flat])))
    found = spec.module.state_dict()
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in found.items()}


def _write_tensors(draft: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    with draft.open("xb") as file:
        write_tensors(file, arrays, metadata)


def _write(path: Path, write: Callable[[Path], object], *, ending: str = "") -> None:
    """Write a file so that it is there completely or not at all; a framework may insist on an ``ending``."""
    try:
        with replacing(path) as draft:
            if not ending:
                write(draft)
                return
            named = draft.with_name(draft.name + ending)
            try:
                write(named)
                named.replace(draft)
            finally:
                named.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(f"cannot write model file {path}: {explain(error, path)}") from error

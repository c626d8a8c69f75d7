"""Exports of what a trainer holds: a module of PyTorch, a model of Keras, or a network of Ringlet's own.

A module is wrapped so that the artifact is like any other: stored values (n, H, W, C) in, normalisation inside,
probabilities (or values) out. The framework's own exporter writes it, and it is compared with the module on samples of
its data before it is kept.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.engines.modules import ModuleReplica
from ringlet.errors import ModelFileError, UsageError
from ringlet.export import keras as keras_format
from ringlet.export import onnx as onnx_format
from ringlet.export import openvino as openvino_format
from ringlet.export.exporter import NUM_SAMPLES, Export, draft_of, place_for, plan_export
from ringlet.export.parity import compare, samples_of
from ringlet.inference.artifact import SUFFIXES, Artifact
from ringlet.inference.description import INPUT, KEY, OUTPUT, Description, describe
from ringlet.io.storage import place_of
from ringlet.launch.resources import usable_cores
from ringlet.libraries import require
from ringlet.training.session import Session

_BATCH_SIZE = 32
_EXAMPLES = 2
"""Samples to trace with: of one, a framework might take the number for part of the network."""
_OPSET = 18
"""The least that both exporters of PyTorch write."""

Save = Callable[[Any, Path, Description], None]


def export_session(session: Session, path: Path | str) -> Export:
    """Write what a session has trained to ``path``, whose ending says for which framework; one rank may call."""
    place = place_of(path)
    suffix = Path(place.name).suffix.lower()
    target = SUFFIXES.get(suffix)
    if target is None or target == "ringlet":
        known = ", ".join(ending for ending, kind in SUFFIXES.items() if kind != "ringlet")
        raise UsageError(f"'{place}' ends in '{suffix}', an export ends in {known}")
    if not isinstance(session.replica, ModuleReplica):
        return _export_own(session, target, path)
    build, save = _exporter(session.replica, target)
    session.replica.publish()
    data = session.dataset
    description = describe(
        session.spec, data.normalization, data.class_names, dataset=data.name, table=data.table, task=data.task
    )
    place = place_for(place, target, suffix)
    threads = usable_cores()
    with draft_of(place) as draft:
        samples = samples_of(session.dataset, description.preprocessing, NUM_SAMPLES)
        with _quiet(), _explained(session.spec.name, target):
            model = build(session.replica, description, samples.values[:_EXAMPLES])
            save(model, draft, description)
        runtime = Artifact.find(draft).open(threads=threads, batch_size=_BATCH_SIZE)
        try:
            parity = compare(session, runtime.run, samples)
        finally:
            runtime.close()
        parity.check("fp32")
    num_bytes = sum(array.nbytes for array in session.replica.saved(_values(session.replica)).values())
    return Export(session.spec.name, target, place, Artifact.find(place), parity, 0, 0, num_bytes)


def _export_own(session: Session, target: str, path: Path | str) -> Export:
    """A network of Ringlet's own, by way of its model file."""
    if target == "torch-export":
        raise UsageError(f"'{path}': .pt2 is for PyTorch modules; a network of Ringlet's own becomes a program (.py)")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.safetensors"
        session.save(model)
        return plan_export(model, target, path).run()


def _values(replica: ModuleReplica) -> NDArray[Any]:
    return np.concatenate([replica.parameters.flat, replica.state.flat])


def _exporter(replica: ModuleReplica, target: str) -> tuple[Callable[..., Any], Save]:
    """What builds a model of the target, and what saves it."""
    framework = replica.description.framework
    is_torch = framework == "torch" or _keras_backend() == "torch"
    if framework == "torch" and target == "keras":
        raise UsageError("a PyTorch module cannot become a .keras file: export it to .xml, .onnx or .pt2")
    if framework == "keras" and target == "keras":
        return _keras_model, keras_format.save
    if target == "openvino":
        return (_openvino_of_torch if is_torch else _openvino_of_keras), openvino_format.save
    if target == "onnx" and is_torch:
        return _onnx_of_torch, onnx_format.save
    if target == "torch-export" and framework == "torch":
        return _torch_export, _save_torch_export
    if target == "torch":
        raise UsageError("a program (.py) is written of Ringlet's own networks: export a PyTorch module to .pt2")
    raise UsageError(
        f"a Keras model on backend {_keras_backend()} cannot be exported to {target}: export it to .keras or .xml"
        + (", or set KERAS_BACKEND=torch" if target == "onnx" else "")
    )


def _keras_backend() -> str:
    return str(require("keras").backend.backend()) if find_spec("keras") else ""


# -- PyTorch -----------------------------------------------------------------------------------------------------------
def _standalone(replica: ModuleReplica, description: Description) -> Any:
    """A module that takes stored values and gives what predictions are made of, in inference mode."""
    from ringlet.export.standalone import Standalone, standalone_of_keras

    if replica.description.framework == "keras":
        return standalone_of_keras(_keras_model(replica, description, None), description)
    return Standalone(replica.description, description)


def _openvino_of_torch(replica: ModuleReplica, description: Description, values: NDArray[Any]) -> Any:
    openvino, torch = require("openvino"), require("torch")
    shape = openvino.PartialShape([-1, *description.preprocessing.graph_shape])
    with torch.no_grad():
        model = openvino.convert_model(
            _standalone(replica, description), example_input=torch.from_numpy(values), input=shape
        )
    return _named(model)


def _onnx_of_torch(replica: ModuleReplica, description: Description, values: NDArray[Any]) -> Any:
    """By PyTorch's newer exporter if the package that it needs is there, else by the older one."""
    torch, onnx = require("torch"), require("onnx")
    module, example = _standalone(replica, description), (torch.from_numpy(values),)
    names: dict[str, Any] = {
        "input_names": [INPUT],
        "output_names": [OUTPUT],
        "opset_version": _OPSET,
        "verbose": False,
    }
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        file = Path(folder) / "model.onnx"
        if find_spec("onnxscript") is not None:
            samples = ({0: torch.export.Dim("n")},)
            torch.onnx.export(module, example, file, dynamo=True, dynamic_shapes=samples, external_data=False, **names)
        else:
            axes = {INPUT: {0: "n"}, OUTPUT: {0: "n"}}
            torch.onnx.export(module, example, str(file), dynamo=False, dynamic_axes=axes, **names)
        return onnx.load(file)


def _torch_export(replica: ModuleReplica, description: Description, values: NDArray[Any]) -> Any:
    torch = require("torch")
    samples = ({0: torch.export.Dim("n")},)
    with torch.no_grad():
        module, example = _standalone(replica, description), (torch.from_numpy(values),)
        return require("torch.export").export(module, example, dynamic_shapes=samples)


def _save_torch_export(program: Any, path: Path, description: Description) -> None:
    require("torch.export").save(program, path, extra_files={KEY: description.to_json()})


# -- Keras -------------------------------------------------------------------------------------------------------------
def _keras_model(replica: ModuleReplica, description: Description, values: NDArray[Any] | None) -> Any:
    """A functional model around the given one: normalisation, its layout, what makes probabilities."""
    del values
    from ringlet.engines.keras.model_spec import takes_channels_last

    keras, spec = require("keras"), replica.description
    images, value = keras_format.normalized_input(keras, description)
    is_image = description.preprocessing.is_image
    last = takes_channels_last(spec.module, spec.input_shape)
    if is_image and not last:
        value = keras.layers.Permute((3, 1, 2))(value)
    value = spec.module(value, training=False)
    if len(value.shape) == 1:
        value = keras.layers.Reshape((1,))(value)
    if len(value.shape) == 4 and not last:
        value = keras.layers.Permute((2, 3, 1))(value)
    if spec.activation != "identity":
        value = keras.layers.Activation(spec.activation, dtype="float32")(value)
    return keras.Model(images, value)


def _openvino_of_keras(replica: ModuleReplica, description: Description, values: NDArray[Any]) -> Any:
    """By way of a saved model of TensorFlow, which OpenVINO reads."""
    if _keras_backend() != "tensorflow":
        raise UsageError(
            f"a Keras model on backend {_keras_backend()} cannot be exported to openvino: export it to .keras, or set "
            "KERAS_BACKEND=tensorflow or torch"
        )
    del values
    openvino, model = require("openvino"), _keras_model(replica, description, None)
    with tempfile.TemporaryDirectory() as folder:
        model.export(folder, format="tf_saved_model", verbose=False)
        shape = openvino.PartialShape([-1, *description.preprocessing.graph_shape])
        converted = openvino.convert_model(folder, input=shape)
        if len(description.output_shape) == 3:
            converted = _channels_first(openvino, converted)
        return _named(converted)


def _channels_first(openvino: Any, model: Any) -> Any:
    """Masks (n, H, W, K) of Keras as (n, K, H, W), as all other artifacts give them."""
    processing = openvino.preprocess.PrePostProcessor(model)
    processing.output().postprocess().convert_layout([0, 3, 1, 2])
    return processing.build()


def _named(model: Any) -> Any:
    """With the names that Ringlet's artifacts have."""
    model.inputs[0].get_tensor().set_names({INPUT})
    model.outputs[0].get_tensor().set_names({OUTPUT})
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn of what tracing cannot see, and print; the comparison afterwards finds what matters."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _explained(name: str, target: str) -> Iterator[None]:
    """A framework that cannot export a module says why in many ways."""
    try:
        yield
    except (UsageError, ModelFileError, OSError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelFileError(
            f"'{name}' cannot be exported to {target} ({type(error).__name__}: {reason}). Nothing was written"
        ) from error

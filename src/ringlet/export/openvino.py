"""A network as an OpenVINO model, written with OpenVINO's own operations: no other framework takes part.

The graph takes ``images``, stored values as the training data had them, (n, H, W, C) bytes (or floats, for networks
trained on floats), any number at once, and gives ``outputs`` (n, K) or (n, K, H, W) float32. Normalisation and the
order of the axes are inside; the description is in the model's ``rt_info``.

On processors that have it OpenVINO computes in bfloat16 unless the program that compiles a model says otherwise. No
entry of the file changes that, so the file carries the advice, and an export is compared with the engine in both ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from ringlet.export.network import Exporter, Network, PlainRun
from ringlet.inference.description import INPUT, KEY, OUTPUT, WEIGHTS, Description, Weights
from ringlet.inference.runtimes.openvino import shared_core
from ringlet.libraries import require
from ringlet.operations import OPERATIONS
from ringlet.operations.writers import OpenVinoWriter, Value

ADVICE = 'compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}) computes in the precision of training'


def build_model(network: Network, description: Description) -> Any:
    """The ``openvino.Model`` of a network, float32."""
    openvino: Any = require("openvino")
    writer, preprocessing = OpenVinoWriter(require("openvino.opset13")), description.preprocessing
    kind = openvino.Type(preprocessing.dtype)
    parameter = writer.ops.parameter([-1, *preprocessing.graph_shape], kind, name=INPUT)
    parameter.output(0).get_tensor().set_names({INPUT})
    values = {network.input_name: _normalized(writer, parameter, description)}
    for layer in network.layers:
        value = OPERATIONS[layer.op].openvino(writer, layer, [values[name] for name in layer.inputs])
        value.set_friendly_name(layer.name)
        values[layer.name] = value
    result = writer.ops.result(value, name=OUTPUT)
    value.output(0).get_tensor().set_names({OUTPUT})
    return openvino.Model([result], [parameter], network.name)


def save(model: Any, path: Path, description: Description) -> None:
    """Write ``path`` (.xml) and the weights beside it (.bin); half precision if the description says so."""
    openvino = require("openvino")
    model.set_rt_info(description.to_json(), [KEY, "description"])
    model.set_rt_info(ADVICE, [KEY, "precision"])
    openvino.save_model(model, path, compress_to_fp16=description.weights == "fp16")


def open_plainly(path: Path) -> PlainRun:
    """Compiled for the processor with OpenVINO's own settings."""
    compiled = shared_core().compile_model(path, "CPU")
    return lambda values: compiled({0: values})[0]


def _normalized(writer: OpenVinoWriter, parameter: Value, description: Description) -> Value:
    """``value * factor + offset`` per channel, rounded as training rounds it, and channels before rows."""
    preprocessing, ops = description.preprocessing, writer.ops
    value = ops.convert(parameter, "f32") if preprocessing.dtype == np.uint8 else parameter
    if preprocessing.is_image:
        value = ops.transpose(value, ops.constant(np.array([0, 3, 1, 2], np.int64)))
    factor, offset = preprocessing.normalization.factors(np.float32)
    value = ops.multiply(value, writer.per_channel(factor, preprocessing.input_shape))
    return ops.add(value, writer.per_channel(offset, preprocessing.input_shape))


@final
class OpenVino(Exporter):
    """OpenVINO: an .xml file with its .bin."""

    name: ClassVar[str] = "openvino"
    precisions: ClassVar[tuple[Weights, ...]] = WEIGHTS
    precision_advice: ClassVar[str] = ADVICE

    def build_model(self, network: Network, description: Description) -> Any:
        """See :func:`build_model`."""
        return build_model(network, description)

    def save(self, model: Any, path: Path, description: Description) -> None:
        """See :func:`save`."""
        save(model, path, description)

    def open_plainly(self, path: Path) -> PlainRun:
        """See :func:`open_plainly`."""
        return open_plainly(path)

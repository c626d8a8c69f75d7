"""A network as an ONNX model, written node by node: no other framework takes part.

The graph is that of the OpenVINO export: ``images`` (n, H, W, C) of stored values in, ``outputs`` (n, K) or
(n, K, H, W) float32 out, normalisation inside, the description in ``metadata_props``. Half-precision weights are stored
as such and cast by the graph; runtimes do that once, when they load it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from ringlet.export.network import Exporter, Network, PlainRun
from ringlet.inference.description import INPUT, KEY, OUTPUT, WEIGHTS, Description, Weights
from ringlet.libraries import require
from ringlet.operations import OPERATIONS
from ringlet.operations.writers import OnnxWriter, per_channel

OPSET, IR_VERSION = 17, 8
"""Of 2022: everything needed is there, and every runtime in use reads it."""


def build_model(network: Network, description: Description) -> Any:
    """The ``onnx.ModelProto`` of a network."""
    onnx: Any = require("onnx")
    helper, preprocessing, floats = require("onnx.helper"), description.preprocessing, onnx.TensorProto.FLOAT
    writer = OnnxWriter(onnx, half=description.weights == "fp16")
    kind = onnx.TensorProto.UINT8 if preprocessing.dtype == np.uint8 else floats
    source = helper.make_tensor_value_info(INPUT, kind, ["n", *preprocessing.graph_shape])
    result = helper.make_tensor_value_info(OUTPUT, floats, ["n", *network.output_shape])
    names = {network.input_name: _normalized(writer, description)}
    for layer in network.layers:
        inputs = [names[name] for name in layer.inputs]
        names[layer.name] = OPERATIONS[layer.op].onnx(writer, layer, inputs, f"{layer.name}.output")
    writer.node("Identity", [names[network.layers[-1].name]], OUTPUT)
    model = helper.make_model(
        helper.make_graph(writer.nodes, network.name, [source], [result], writer.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="ringlet",
        producer_version=description.version,
    )
    require("onnx.checker").check_model(model, full_check=True)
    return model


def save(model: Any, path: Path, description: Description) -> None:
    """Write the file and let it carry the description."""
    require("onnx.helper").set_model_props(model, {KEY: description.to_json()})
    require("onnx").save(model, path)


def open_plainly(path: Path) -> PlainRun:
    """A session of ONNX Runtime with its own settings."""
    library: Any = require("onnxruntime")
    session = library.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda values: session.run(None, {INPUT: values})[0]


def _normalized(writer: OnnxWriter, description: Description) -> str:
    """``value * factor + offset`` per channel, rounded as training rounds it, and channels before rows."""
    preprocessing = description.preprocessing
    name = INPUT
    if preprocessing.dtype == np.uint8:
        name = writer.node("Cast", [name], f"{INPUT}.float", to=writer.onnx.TensorProto.FLOAT)
    if preprocessing.is_image:
        name = writer.node("Transpose", [name], f"{INPUT}.channels_first", perm=[0, 3, 1, 2])
    factors = preprocessing.normalization.factors(np.float32)
    factor, offset = (per_channel(values, preprocessing.input_shape) for values in factors)
    return writer.affine(name, {"factor": factor, "offset": offset}, INPUT, f"{INPUT}.normalized")


@final
class Onnx(Exporter):
    """ONNX: one .onnx file."""

    name: ClassVar[str] = "onnx"
    precisions: ClassVar[tuple[Weights, ...]] = WEIGHTS
    inputs_have_names: ClassVar[bool] = True

    def build_model(self, network: Network, description: Description) -> Any:
        """See :func:`build_model`."""
        return build_model(network, description)

    def save(self, model: Any, path: Path, description: Description) -> None:
        """See :func:`save`."""
        save(model, path, description)

    def open_plainly(self, path: Path) -> PlainRun:
        """See :func:`open_plainly`."""
        return open_plainly(path)

"""A network as a Keras model, functional, of Keras' own layers and operations: ``NAME.keras`` loads without Ringlet.

Images are (n, H, W, C) throughout, so masks come out as (n, H, W, K). Normalisation is the first layer. The
description is a member of the archive, ``ringlet.json``.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.export.network import Layer, Network
from ringlet.inference.description import INPUT, KEY, Description
from ringlet.libraries import require

if TYPE_CHECKING:
    from ringlet.engines.keras.layers import Form, LayerWriter

MEMBER = f"{KEY}.json"
_NORMALIZE = "normalize"


def build_model(network: Network, description: Description) -> Any:
    """The ``keras.Model`` of a network."""
    keras: Any = require("keras")
    from ringlet.engines.keras.layers import LayerWriter, image_layout, plain_name

    writer = LayerWriter("float32", channels_first=False, taken=(INPUT, _NORMALIZE))
    with image_layout(channels_first=False):
        images, value = _normalized_input(keras, description)
        values = {network.input_name: value}
        for layer in network.layers:
            value = _written(keras, network, layer, writer, [values[name] for name in layer.inputs])
            values[layer.name] = value
        model = keras.Model(images, value, name=plain_name(network.name))
    _set_weights(network, writer)
    return model


def save(model: Any, path: Path, description: Description) -> None:
    """Write the .keras file and put the description into it."""
    model.save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(MEMBER, description.to_json())


def _normalized_input(keras: Any, description: Description) -> tuple[Any, Any]:
    preprocessing = description.preprocessing
    images = keras.Input(preprocessing.graph_shape, dtype=str(preprocessing.dtype), name=INPUT)
    factor, offset = (values.tolist() for values in preprocessing.normalization.factors(np.float32))
    if len(factor) == 1:
        factor, offset = factor[0], offset[0]
    return images, keras.layers.Rescaling(factor, offset, dtype="float32", name=_NORMALIZE)(images)


def _written(keras: Any, network: Network, layer: Layer, writer: LayerWriter, inputs: list[Any]) -> Any:
    if layer.op == "affine":
        scale, shift = (layer.tensors[role].tolist() for role in ("scale", "shift"))
        return keras.layers.Rescaling(scale, shift, dtype="float32", name=writer.name(layer.name))(inputs[0])
    return writer.write(_form(network, layer), inputs)


def _form(network: Network, layer: Layer) -> Form:
    from ringlet.engines.keras.layers import Form

    source = network.shape(layer.inputs[0])
    return Form(layer.name, layer.op, layer.attributes, source, layer.shape, "bias" in layer.tensors)


def _set_weights(network: Network, writer: LayerWriter) -> None:
    for layer in network.layers:
        if layer.name in writer.weighted:
            made, arrangement = writer.weighted[layer.name]
            bias = [layer.tensors["bias"]] if "bias" in layer.tensors else []
            made.set_weights([arrangement.apply(layer.tensors["weight"], np), *bias])

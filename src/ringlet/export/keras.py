"""A network as a Keras model, functional, of Keras' own layers and operations: ``NAME.keras`` loads without Ringlet.

Images are (n, H, W, C) throughout, so masks come out as (n, H, W, K). Normalisation is the first layer. The
description is a member of the archive, ``ringlet.json``.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from ringlet.export.network import Exporter, Network
from ringlet.inference.description import INPUT, KEY, Description, Weights
from ringlet.libraries import require
from ringlet.operations import OPERATIONS
from ringlet.operations.writers import KerasWriter, plain_name

MEMBER = f"{KEY}.json"
_NORMALIZE = "normalize"


def build_model(network: Network, description: Description) -> Any:
    """The ``keras.Model`` of a network."""
    keras: Any = require("keras")
    writer = KerasWriter(keras, "float32", channels_first=False, taken=(INPUT, _NORMALIZE))
    with writer.layout():
        images, value = normalized_input(keras, description)
        values = {network.input_name: value}
        for layer in network.layers:
            value = OPERATIONS[layer.op].keras(writer, layer, [values[name] for name in layer.inputs])
            values[layer.name] = value
        model = keras.Model(images, value, name=plain_name(network.name))
    _set_weights(network, writer)
    return model


def save(model: Any, path: Path, description: Description) -> None:
    """Write the .keras file and put the description into it."""
    model.save(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(MEMBER, description.to_json())


def normalized_input(keras: Any, description: Description) -> tuple[Any, Any]:
    """The input of a functional model, and its values after normalisation."""
    preprocessing = description.preprocessing
    images = keras.Input(preprocessing.graph_shape, dtype=str(preprocessing.dtype), name=INPUT)
    factor, offset = (values.tolist() for values in preprocessing.normalization.factors(np.float32))
    if len(factor) == 1:
        factor, offset = factor[0], offset[0]
    return images, keras.layers.Rescaling(factor, offset, dtype="float32", name=_NORMALIZE)(images)


def _set_weights(network: Network, writer: KerasWriter) -> None:
    for layer in network.layers:
        if layer.name in writer.owners:
            made, arrangement = writer.owners[layer.name]
            weight, *rest = layer.tensors.values()
            made.set_weights([weight if arrangement is None else arrangement.apply(weight, np), *rest])


@final
class Keras(Exporter):
    """Keras 3: one .keras file."""

    name: ClassVar[str] = "keras"
    precisions: ClassVar[tuple[Weights, ...]] = ("fp32",)

    def build_model(self, network: Network, description: Description) -> Any:
        """See :func:`build_model`."""
        return build_model(network, description)

    def save(self, model: Any, path: Path, description: Description) -> None:
        """See :func:`save`."""
        save(model, path, description)

    def open_plainly(self, path: Path) -> None:
        """Its only way is the one that Ringlet takes, too."""

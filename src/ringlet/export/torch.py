"""A network as a PyTorch program: ``NAME.py``, a plain ``torch.nn.Module``, and ``NAME.safetensors``, its weights.

The program needs PyTorch and nothing else, can be read, changed and trained further. A ``torch.export`` file (.pt2)
would be one file, but to read one may mean to unpickle, so it can run anything unseen; tracing takes its time (for a
DenseNet-121 half a minute, and a quarter for every loading), and what comes out is no faster than the plain module.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ringlet.export.network import Exporter, Network
from ringlet.inference.description import KEY, Description, Weights
from ringlet.operations import OPERATIONS, Layer
from ringlet.operations.writers import SMALL, per_channel

WEIGHTS_SUFFIX = ".safetensors"


class Program(NamedTuple):
    """The text of a program, and what its ``state_dict`` holds."""

    source: str
    tensors: list[tuple[str, NDArray[Any]]]


_PURPOSE = "From stored values, as the training data had them, to the outputs of the network."

_HEAD = '''"""{title}, written by Ringlet {version}. Needs PyTorch and nothing else.

    network = load()              # reads the .safetensors file beside this one
    outputs = network(images)     # takes {takes}, gives {gives}, float32
"""

import json
import math
import struct
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

DESCRIPTION = {description}


class Network(nn.Module):
    """{title}; normalises its inputs itself."""

    def __init__(self):
        super().__init__()
'''

_TAIL = '''

def load(path=Path(__file__).with_suffix("{suffix}")):
    """The network with its weights, ready for inference."""
    network = Network()
    network.load_state_dict(read_tensors(path))
    return network.eval().requires_grad_(False)


def read_tensors(path):
    """The tensors of a safetensors file as float32: eight bytes of length, a JSON header, then plain numbers."""
    content = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    tensors = {{}}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name != "__metadata__":
            kind = {{"F16": torch.float16, "F32": torch.float32}}[entry["dtype"]]
            start = 8 + length + entry["data_offsets"][0]
            values = torch.frombuffer(content, dtype=kind, count=math.prod(entry["shape"]), offset=start)
            tensors[name] = values.reshape(entry["shape"]).to(torch.float32)
    return tensors
'''


def build_model(network: Network, description: Description) -> Program:
    """The program of a network."""
    writer = _Writer(network, description)
    preprocessing = description.preprocessing
    head = _HEAD.format(
        title=network.name,
        version=description.version,
        takes=f"({', '.join(map(str, ('n', *preprocessing.graph_shape)))}) {preprocessing.dtype}",
        gives=f"({', '.join(map(str, ('n', *network.output_shape)))})",
        description=repr(description.to_json()),
    )
    return Program(head + writer.body() + _TAIL.format(suffix=WEIGHTS_SUFFIX), writer.tensors())


def save(program: Program, path: Path, description: Description) -> None:
    """Write ``path`` (.py) and the weights beside it (.safetensors)."""
    tensors = {name: _stored(values, description) for name, values in program.tensors}
    save_file(tensors, path.with_suffix(WEIGHTS_SUFFIX), metadata={KEY: description.to_json()})
    path.write_text(program.source, encoding="utf-8")


class _Writer:
    """Turns layers into lines of code."""

    def __init__(self, network: Network, description: Description) -> None:
        self._network, self._description = network, description
        self._names = _identifiers([layer.name for layer in network.layers])
        self._modules = {layer.name: OPERATIONS[layer.op].torch_module(layer) for layer in network.layers}
        self._readers = _readers(network)
        self._variables = self._chosen_variables()

    def _chosen_variables(self) -> dict[str, str]:
        """``x`` for what just the next layer reads, the layer's own name for what is kept."""
        made = [self._network.input_name, *(layer.name for layer in self._network.layers)]
        passed_on = {name for index, name in enumerate(made) if self._readers.get(name, [index]) == [index]}
        kept = {name: self._names.get(name, "images_") for name in made}
        return {name: "x" if name in passed_on else kept[name] for name in made}

    def tensors(self) -> list[tuple[str, NDArray[Any]]]:
        """What the program's ``state_dict`` holds."""
        factor, offset = self._description.preprocessing.normalization.factors(np.float32)
        shape = self._description.preprocessing.input_shape
        found = [("factor", per_channel(factor, shape)), ("offset", per_channel(offset, shape))]
        for layer in self._network.layers:
            name, in_module = self._names[layer.name], bool(self._modules[layer.name])
            for role, values in layer.tensors.items():
                own = (f"{name}.{role}", values) if in_module else (f"{name}_{role}", per_channel(values, layer.shape))
                found.append(own)
        return found

    def body(self) -> str:
        """The constructor's lines and ``forward``."""
        made, done = self._constructor(), self._forward()
        lines = [f"        {line}" for line in made]
        lines += ["", "    def forward(self, images):", f'        """{_PURPOSE}"""']
        return "\n".join(lines + [f"        {line}" for line in done]) + "\n"

    def _constructor(self) -> list[str]:
        lines = [
            f'self.register_buffer("{name}", torch.zeros({tuple(values.shape)}))'
            for name, values in self.tensors()
            if "." not in name
        ]
        return [*lines, *(f"self.{self._names[name]} = {module}" for name, module in self._modules.items() if module)]

    def _forward(self) -> list[str]:
        image = self._description.preprocessing.is_image
        first = self._variables[self._network.input_name]
        lines = [
            f"{first} = images{'.permute(0, 3, 1, 2)' if image else ''}.to(torch.float32) * self.factor + self.offset"
        ]
        for index, layer in enumerate(self._network.layers):
            lines.append(f"{self._variables[layer.name]} = {self._expression(layer)}")
            read = dict.fromkeys(layer.inputs)
            done = [self._variables[name] for name in read if self._readers[name][-1] == index]
            if named := [name for name in done if name != "x"]:
                lines.append(f"del {', '.join(named)}")
        return [*lines, "return x"]

    def _expression(self, layer: Layer) -> str:
        names = [self._variables[name] for name in layer.inputs]
        own = self._names[layer.name]
        if self._modules[layer.name]:
            return f"self.{own}({names[0]})"
        tensors = {role: f"self.{own}_{role}" for role in layer.tensors}
        return OPERATIONS[layer.op].torch(replace(layer, tensors=tensors), names)


def _readers(network: Network) -> dict[str, list[int]]:
    """The layers, by number, that read each value."""
    found: dict[str, list[int]] = {}
    for index, layer in enumerate(network.layers):
        for name in dict.fromkeys(layer.inputs):
            found.setdefault(name, []).append(index)
    return found


def _identifiers(names: list[str]) -> dict[str, str]:
    """Names of layers as names of variables, none twice.

    All end in a digit or an underscore, which no keyword, no attribute of a module and no name of the program does.
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        plain = plain if plain[0].isalpha() else f"layer_{plain}"
        plain = plain if plain[-1].isdigit() else f"{plain}_"
        while plain in found.values():
            plain += "_"
        found[name] = plain
    return found


def _stored(values: NDArray[Any], description: Description) -> NDArray[Any]:
    """In half precision if asked for, except the few that would save nothing: constants of the normalisation, say."""
    half = description.weights == "fp16" and values.size >= SMALL
    return np.ascontiguousarray(values, np.float16 if half else np.float32)


@final
class Torch(Exporter):
    """PyTorch: a program that needs nothing but torch, with its weights."""

    name: ClassVar[str] = "torch"
    precisions: ClassVar[tuple[Weights, ...]] = ("fp32", "fp16")

    def build_model(self, network: Network, description: Description) -> Program:
        """See :func:`build_model`."""
        return build_model(network, description)

    def save(self, model: Any, path: Path, description: Description) -> None:
        """See :func:`save`."""
        save(model, path, description)

    def open_plainly(self, path: Path) -> None:
        """Its only way is the one that Ringlet takes, too."""

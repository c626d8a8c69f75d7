"""ONNX models, by ONNX Runtime. A model is read once and checked; what was checked is what runs.

A tensor may be *external*: the file then names another one, relative to its folder, or, for a model that came as bytes,
to whatever folder the process works in. So a model could make a database read any file of the server as weights. Export
writes one file, so such tensors are refused, wherever they point to. The file is read as what it is, nested protocol
buffers: numbered fields, of which those are followed that lead to tensors (``onnx.proto``). ONNX's own library is not
needed to run models, and may not be there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.artifact import Outputs
from ringlet.inference.description import KEY, Description
from ringlet.libraries import require


@final
class OnnxRuntime:
    """A session whose calls compute on the thread that makes them: as many at once as there are callers."""

    def __init__(self, network: Path | bytes) -> None:
        what, content = _content(network)
        check_self_contained(content, what)
        library: Any = require("onnxruntime")
        library.disable_telemetry_events()
        options = library.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.load_model_format", "ONNX")  # or it would guess
        try:
            self._session = library.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # many types, none of them exported
            raise ModelFileError(f"{what} is not a readable ONNX model ({str(error)[:200]})") from error
        metadata = self._session.get_modelmeta().custom_metadata_map
        if KEY not in metadata:
            raise ModelFileError(
                "the ONNX model carries no description of Ringlet: write it with `ringlet export --to onnx`"
            )
        self.description = Description.from_json(metadata[KEY])
        self._check_graph()
        self._input = self._session.get_inputs()[0].name

    def run(self, values: NDArray[Any]) -> Outputs:
        """Compute on this thread."""
        outputs: Outputs = self._session.run(None, {self._input: values})[0]
        return outputs

    def close(self) -> None:
        """Nothing outlives the session."""

    def _check_graph(self) -> None:
        """Refuse a description that belongs to another graph."""
        ports = (*self._session.get_inputs(), *self._session.get_outputs())
        found = [tuple(port.shape[1:]) for port in ports]
        wanted = [self.description.preprocessing.graph_shape, self.description.output_shape]
        if found != wanted:
            raise ModelFileError(f"the ONNX model has inputs and outputs {found}, its description says {wanted}")


def _content(network: Path | bytes) -> tuple[str, bytes]:
    """What to call the model, and its bytes."""
    if not isinstance(network, Path):
        return "the model", network
    try:
        return f"model file {network}", network.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read model file {network}: {error.strerror or error}") from None


# -- tensors in other files -------------------------------------------------------------------------------------------
_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _SPARSE, _FUNCTION, _TRAINING = range(8)
_INSIDE: Final[dict[int, dict[int, int]]] = {
    _MODEL: {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _TRAINING: {1: _GRAPH, 2: _GRAPH},
}
"""Which fields of a message are messages that hold tensors."""
_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 8, 13, 14
"""Fields of a tensor."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_TAG, _MAX_VARINT_BYTES = (1 << 32) - 1, 10


def check_self_contained(content: bytes, what: str) -> None:
    """Refuse a model with tensors in other files; ``what`` names it in the error."""
    try:
        names = list(_external_tensors(content))
    except (IndexError, ValueError) as error:
        raise ModelFileError(f"{what} is not a readable ONNX model ({error})") from None
    if names:
        raise ModelFileError(
            f"{what} keeps {len(names)} of its tensors in other files ('{names[0][:80]}'), which would be read from "
            "wherever it says: expected a model in one file. Write it with `ringlet export --to onnx`, or join the "
            "parts: onnx.save(onnx.load(PATH), NEW_PATH)"
        )


def _external_tensors(content: bytes) -> Iterator[str]:
    """The names of tensors whose values are not in the file."""
    waiting = [(_MODEL, 0, len(content))]
    while waiting:
        kind, start, end = waiting.pop()
        if kind == _TENSOR:
            yield from _if_external(content, start, end)
            continue
        for number, wire, value, stop in _fields(content, start, end):
            inner = _INSIDE[kind].get(number)
            if inner is not None and wire == _BYTES:
                waiting.append((inner, value, stop))


def _if_external(content: bytes, start: int, end: int) -> Iterator[str]:
    name, is_external = b"", False
    for number, wire, value, stop in _fields(content, start, end):
        if number == _NAME and wire == _BYTES:
            name = content[value:stop]
        is_external |= number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value != 0)
    if is_external:
        yield name.decode("utf-8", "replace")


def _fields(content: bytes, place: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, value, end): of bytes the value is where they begin, of fixed numbers as well."""
    while place < end:
        tag, place = _varint(content, place, end)
        number, wire = tag >> 3, tag & 7
        if tag > _MAX_TAG or number == 0:
            raise ValueError(f"a field with the tag {tag}")
        if wire == _VARINT:
            value, place = _varint(content, place, end)
        elif wire == _BYTES:
            length, value = _varint(content, place, end)
            place = value + length
        elif wire in (_FIXED64, _FIXED32):
            value, place = place, place + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"a field of wire type {wire}")
        if place > end:
            raise ValueError("a field that ends outside of its message")
        yield number, wire, value, place


def _varint(content: bytes, place: int, end: int) -> tuple[int, int]:
    """A number in seven bits per byte, and where it ends."""
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if place >= end:
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, place
    raise ValueError("a number that does not end")

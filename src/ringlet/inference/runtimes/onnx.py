"""ONNX models, by ONNX Runtime. A model is read once and checked; what was checked is what runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.description import KEY, Description
from ringlet.inference.runtimes.contract import Outputs
from ringlet.inference.runtimes.onnx_file import check_self_contained
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

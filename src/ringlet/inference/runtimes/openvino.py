"""OpenVINO models. Made for many callers: databases, several threads, several processes of one machine.

- No pinning: by default every process pins its threads to the same cores.
- One inference on one thread before anything concurrent: without it, callers that arrive together can lock each other
  out while OpenVINO initialises itself.
- Requests wait in a queue, not in thread-local storage, which dies with threads that are not ours.
- One core for the whole process, which is never freed: each gives the thread that compiles with it another stack for
  signals, and takes it back when it is freed. Of two that are freed in the order in which they were made, the second
  leaves the freed stack of the first behind, and the next signal, a mere Ctrl-C, ends the process.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.artifact import Outputs
from ringlet.inference.description import KEY, Description
from ringlet.libraries import require

_STARTING = Lock()
"""Only one model is loaded and warmed up at a time."""
_GRAPH = re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|net)[\s>]")
_LOOKED_AT = 1024


@final
class OpenVinoRuntime:
    """A compiled model and ``threads`` requests, each computing on one thread."""

    def __init__(self, network: Path | bytes, weights: Path | bytes | None, *, threads: int) -> None:
        with _STARTING:
            core = shared_core()
            model = _read(core, network, weights)
            self.description = _description(model)
            _check_graph(model, self.description)
            settings = {
                "ENABLE_CPU_PINNING": False,
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": threads,
                "INFERENCE_PRECISION_HINT": "f32",  # or processors that can would compute in bfloat16
            }
            compiled = core.compile_model(model, "CPU", settings)
            self._requests: SimpleQueue[Any] = SimpleQueue()
            for _ in range(threads):
                self._requests.put(compiled.create_infer_request())
            preprocessing = self.description.preprocessing
            self.run(np.zeros((1, *preprocessing.graph_shape), preprocessing.dtype))

    def run(self, values: NDArray[Any]) -> Outputs:
        """Compute on a free request; waits for one."""
        request = self._requests.get()
        try:
            outputs: Outputs = request.infer({0: values}, share_inputs=True)[0]
        finally:
            self._requests.put(request)
        return outputs

    def close(self) -> None:
        """Free the requests that are not at work."""
        while not self._requests.empty():
            self._requests.get()


@cache
def shared_core() -> Any:
    """OpenVINO's core: one for the whole process."""
    return require("openvino").Core()


def _read(core: Any, network: Path | bytes, weights: Path | bytes | None) -> Any:
    what = f"model file {network}" if isinstance(network, Path) else "the model"
    _check_is_graph(network, what)
    try:
        return core.read_model(network, weights) if weights is not None else core.read_model(network)
    except Exception as error:  # RuntimeError of several kinds, with C++ locations in their texts
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise ModelFileError(f"{what} is not a readable OpenVINO model ({reason[:200]})") from error


def _check_is_graph(network: Path | bytes, what: str) -> None:
    """Refuse what is no graph of OpenVINO's own kind.

    It takes models of other frameworks as well, whatever they are called, and finds out by their content: an ONNX model
    would be read with all the files that it names as its weights.
    """
    try:
        if isinstance(network, Path):
            with network.open("rb") as file:
                start = file.read(_LOOKED_AT)
        else:
            start = network[:_LOOKED_AT]
    except OSError as error:
        raise ModelFileError(f"cannot read {what}: {error.strerror or error}") from None
    if not _GRAPH.match(start):
        raise ModelFileError(
            f"{what} is not a readable OpenVINO model (it does not begin like one): write it with "
            "`ringlet export --to openvino`"
        )


def _description(model: Any) -> Description:
    path = [KEY, "description"]
    if not model.has_rt_info(path):
        raise ModelFileError(
            "the OpenVINO model carries no description of Ringlet: write it with `ringlet export --to openvino`"
        )
    return Description.from_json(model.get_rt_info(path).astype(str))


def _check_graph(model: Any, description: Description) -> None:
    """Refuse a description that belongs to another graph."""
    found = [
        tuple(extent.get_length() for extent in list(port.get_partial_shape())[1:])
        for port in (*model.inputs, *model.outputs)
    ]
    wanted = [description.preprocessing.graph_shape, description.output_shape]
    if found != wanted:
        raise ModelFileError(f"the OpenVINO model has inputs and outputs {found}, its description says {wanted}")

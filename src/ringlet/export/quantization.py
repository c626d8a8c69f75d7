"""INT8 by post-training quantisation (nncf): weights and activations in eight bits, ranges from calibration samples."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stdout
from typing import Any

from numpy.typing import NDArray

from ringlet.inference.description import INPUT
from ringlet.libraries import require


def quantize(model: Any, values: NDArray[Any], *, by_name: bool) -> Any:
    """An OpenVINO or ONNX model (``by_name``: its inputs are fed by name) quantised with stored values (n, …)."""
    with redirect_stdout(io.StringIO()):  # it draws progress bars where results belong
        nncf: Any = require("nncf")
        nncf.set_log_level(logging.ERROR)
        samples = [values[index : index + 1] for index in range(len(values))]
        dataset = nncf.Dataset(samples, (lambda sample: {INPUT: sample}) if by_name else None)
        return nncf.quantize(model, dataset, subset_size=len(samples))

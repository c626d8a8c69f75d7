"""PyTorch artifacts: the program that the export has written is run as it is."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from threading import Lock
from typing import Any, final

from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.description import Description
from ringlet.inference.runtimes.contract import Outputs
from ringlet.libraries import require

MAX_PROGRAM_BYTES = 64 << 20


@final
class TorchRuntime:
    """The network of a generated program. It is code: as with any program, run only what you trust."""

    def __init__(self, path: Path, *, threads: int) -> None:
        self._torch: Any = require("torch")
        self.description = _description(path)
        self._network = _load(path)
        self._threads, self._lock = threads, Lock()

    def run(self, values: NDArray[Any]) -> Outputs:
        """Compute for one caller at a time, on ``threads`` threads; PyTorch's own setting is put back."""
        torch = self._torch
        with self._lock, torch.inference_mode():
            usual = torch.get_num_threads()
            torch.set_num_threads(self._threads)
            try:
                outputs: Outputs = self._network(torch.from_numpy(values)).contiguous().numpy()
            finally:
                torch.set_num_threads(usual)
        return outputs

    def close(self) -> None:
        """Nothing outlives the network."""


def _description(path: Path) -> Description:
    """From the text of the program, before any of it runs."""
    try:
        if path.stat().st_size > MAX_PROGRAM_BYTES:
            raise ModelFileError(f"{path} is too long for a program of Ringlet's")
        lines = ast.parse(path.read_text(encoding="utf-8")).body
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a Python program ({error})") from None
    for line in lines:
        match line:
            case ast.Assign([ast.Name("DESCRIPTION")], ast.Constant(str(text))):
                return Description.from_json(text)
    raise ModelFileError(f"{path} carries no description of Ringlet: write it with `ringlet export --to torch`")


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("ringlet_exported_network", path)
    if spec is None or spec.loader is None:
        raise ModelFileError(f"{path} cannot be loaded as a Python program")
    program = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(program)
        return program.load()
    except Exception as error:
        raise ModelFileError(
            f"{path} does not load its network ({type(error).__name__}: {str(error)[:200]})"
        ) from error

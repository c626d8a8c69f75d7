"""PyTorch artifacts: the program that the export has written is run as it is."""

from __future__ import annotations

import ast
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from threading import Lock
from types import CodeType
from typing import Any, final

from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.artifact import Outputs
from ringlet.inference.description import Description
from ringlet.libraries import require

MAX_PROGRAM_BYTES = 64 << 20
_MODULE = "ringlet_exported_network"


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


@final
class _SourceLoader(SourceFileLoader):
    """Runs the file that was named and nothing else: compiled files of ``__pycache__`` are neither read nor written."""

    def get_code(self, fullname: str) -> CodeType:
        """Of the source as it is now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _load(path: Path) -> Any:
    loader = _SourceLoader(_MODULE, str(path))
    spec = ModuleSpec(_MODULE, loader, origin=str(path))
    spec.has_location = True  # gives the program its __file__, beside which it looks for its weights
    program = module_from_spec(spec)
    try:
        loader.exec_module(program)
        return program.load()
    except Exception as error:
        raise ModelFileError(
            f"{path} does not load its network ({type(error).__name__}: {str(error)[:200]})"
        ) from error

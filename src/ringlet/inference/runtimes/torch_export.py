"""PyTorch's archives of exported modules (.pt2). To read one may mean to unpickle: open only those that you trust."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any, final

from numpy.typing import NDArray

from ringlet.errors import ModelFileError
from ringlet.inference.artifact import Outputs
from ringlet.inference.description import KEY, Description
from ringlet.libraries import require


@final
class TorchExportRuntime:
    """The program of an archive; it computes for one caller at a time."""

    def __init__(self, path: Path, *, threads: int) -> None:
        self._torch: Any = require("torch")
        carried = {KEY: ""}
        try:
            program = require("torch.export").load(path, extra_files=carried)
            self._network = program.module()
        except Exception as error:  # of many types: it is an archive of several formats
            raise ModelFileError(
                f"model file {path} is not a readable archive of torch.export ({str(error)[:200]})"
            ) from error
        text = carried[KEY]
        if not text:
            raise ModelFileError(f"model file {path} carries no description of Ringlet: write it with Trainer.export")
        self.description = Description.from_json(text if isinstance(text, str) else bytes(text).decode("ascii"))
        self._threads, self._lock = threads, Lock()

    def run(self, values: NDArray[Any]) -> Outputs:
        """Compute on ``threads`` threads; PyTorch's own setting is put back."""
        torch = self._torch
        with self._lock, torch.no_grad():
            usual = torch.get_num_threads()
            torch.set_num_threads(self._threads)
            try:
                outputs: Outputs = self._network(torch.from_numpy(values)).contiguous().numpy()
            finally:
                torch.set_num_threads(usual)
        return outputs

    def close(self) -> None:
        """Nothing outlives the network."""

"""Collectives in PyTorch's profiler: ``ringlet:all_reduce`` from its submission until it is done, as Gloo has it."""

# PyTorch exports these names without saying so to type checkers.
# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor
from torch.futures import Future

from ringlet import torch_backend

_TITLES = {"allreduce": "all_reduce"}
"""Where PyTorch's function has another name than the method of a group."""


def begin(what: str, tensors: Iterable[Tensor]) -> Record | None:
    """A record of what is about to be submitted, if the calling thread is profiled."""
    if not torch.autograd._profiler_enabled():
        return None
    return Record(f"{torch_backend.NAME}:{_TITLES.get(what, what)}", tensors)


@final
class Record:
    """An event that has begun. It must end before those who wait go on: they may end the profiler, and its memory."""

    def __init__(self, title: str, tensors: Iterable[Tensor]) -> None:
        self._thread = threading.get_ident()
        self._ended: Future[None] = Future()
        record = torch.autograd._record_function_with_args_enter(title, *tensors)
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, self._ended)

    def end(self) -> None:
        """Events that may overlap with others must end in another thread than the one in which they began."""
        if threading.get_ident() != self._thread:
            self._ended.set_result(None)
            return
        thread = threading.Thread(target=self._ended.set_result, args=(None,))
        thread.start()
        thread.join()

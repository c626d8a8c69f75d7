"""Files that rank 0 writes and reads for all: safetensors with an outline of the object. No pickle.

The file is there completely or not at all. An error of rank 0 is raised on all ranks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ringlet.errors import CheckpointError, RingletError
from ringlet.io.disk import replacing
from ringlet.named import ProcessSet
from ringlet.named.session import global_process_set
from ringlet.torch.broadcasting import broadcast_object
from ringlet.torch.objects import join, split

_OUTLINE = "ringlet.outline"
PathName = str | os.PathLike[str]


def save(obj: Any, path: PathName, process_set: ProcessSet = global_process_set) -> None:
    """Write an object, usually a dictionary of ``state_dict()``, by the lowest rank alone; every rank must call.

    When it returns the file is there, on all ranks.
    """
    _on_first_rank(lambda: write(obj, Path(path)), process_set)


def load(path: PathName, process_set: ProcessSet = global_process_set) -> Any:
    """The object in a file that :func:`save` wrote: read by the lowest rank, given to all. Tensors are on the CPU."""
    return _on_first_rank(lambda: read(Path(path)), process_set)


def _on_first_rank(work: Callable[[], Any], process_set: ProcessSet) -> Any:
    """What the work gives on the lowest rank, on all ranks; or its error."""
    result, problem = None, ""
    if process_set.rank() == 0:
        try:
            result = work()
        except RingletError as error:
            problem = str(error)
    assert process_set.ranks is not None
    problem, result = broadcast_object([problem, result], process_set.ranks[0], None, process_set)
    if problem:
        raise CheckpointError(problem)
    return result


def write(obj: Any, path: Path) -> None:
    """Write the file in this process: beside its name, flushed to the disk, renamed."""
    outline, tensors = split(obj)
    named = {f"tensor{place}": _plain(tensor) for place, tensor in enumerate(tensors)}
    try:
        with replacing(path) as draft:
            save_file(named, draft, {_OUTLINE: json.dumps(outline)})
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path}: {error}") from None


def read(path: Path) -> Any:
    """Read the file in this process; nothing in it is executed."""
    try:
        with safe_open(path, "pt") as file:
            outline = json.loads((file.metadata() or {})[_OUTLINE])
            tensors = [file.get_tensor(f"tensor{place}") for place in range(len(file.keys()))]
        return join(outline, tensors)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is not a file that ringlet.torch.save wrote, or damaged: {error!r}") from None


def _plain(tensor: Tensor) -> Tensor:
    """On the CPU, contiguous, in memory of its own: files hold no views."""
    return tensor.detach().to("cpu", copy=True).contiguous(memory_format=torch.contiguous_format)

"""The GPUs that this process sees, by names that all processes of a machine agree on."""

from __future__ import annotations

import torch


def visible_gpus() -> list[str]:
    """A name for each, in the order of PyTorch's numbers; the same GPU has the same name in every process."""
    if not torch.cuda.is_available():
        return []
    return [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]


def take_gpu(index: int) -> str:
    """Make a GPU this process's own; gives PyTorch's name of it."""
    torch.cuda.set_device(index)
    return f"cuda:{index}"

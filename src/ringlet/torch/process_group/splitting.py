"""``torch.distributed.split_group``, which PyTorch itself has for groups of GPUs only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ringlet.errors import CommunicationError

if TYPE_CHECKING:
    from ringlet.torch.process_group import RingletProcessGroup


def split(
    parent: RingletProcessGroup,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """The part that has this rank, or None; ranks are those of the parent, and every one must call with the same."""
    parts = _check_parts(split_ranks, parent.size())
    own = next((part for part in parts if parent.rank() in part), None)
    if own is None:
        return None
    members = dist.get_process_group_ranks(parent)
    return dist.new_group(
        [members[rank] for rank in own],
        timeout=timeout,
        backend=backend or dist.get_backend(parent),
        pg_options=pg_options,
        use_local_synchronization=True,
        group_desc=group_desc or f"{parent.group_desc}:split",
    )


def _check_parts(parts: Sequence[Sequence[int]] | None, size: int) -> list[list[int]]:
    found = [sorted(part) for part in parts or []]
    ranks = [rank for part in found for rank in part]
    if not found or not all(found) or len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(size)):
        raise CommunicationError(
            f"split_group was given {parts}: expected lists of ranks of the parent (0 to {size - 1}), none of them "
            "empty, and no rank twice"
        )
    return found

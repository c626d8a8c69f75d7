"""A user's script with stock DDP; only the name of the backend is Ringlet's. Leaves one line of JSON per rank."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ringlet.torch  # noqa: F401  makes the backend known


def main() -> None:
    told = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
    dist.init_process_group("ringlet", init_method="env://")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    if "fail" in sys.argv[2:]:
        if rank == 1:
            raise ValueError("rank 1 has had enough")
        dist.barrier()
    if "fail-once" in sys.argv[2:] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank == 1:
            raise ValueError("rank 1 fails once")
        dist.barrier()
    weights = b"".join(value.numpy().tobytes() for value in model.module.state_dict().values())
    found = {
        "rank": rank,
        "told before": told,
        "size": dist.get_world_size(),
        "local rank": os.environ["LOCAL_RANK"],
        "communicator": dist.group.WORLD._communicator.name,
        "restarts": os.environ.get("TORCHELASTIC_RESTART_COUNT"),
        "digest": hashlib.sha256(weights).hexdigest(),
    }
    (Path(sys.argv[1]) / f"ddp-{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    if "leave" not in sys.argv[2:]:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A user's script: the public functions, under whatever launcher. Prints one line of JSON and leaves it in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import ringlet


def main() -> None:
    try:
        ringlet.rank()
    except ValueError as error:
        before = f"{type(error).__name__}: {error}"
    assert not ringlet.is_initialized()
    ringlet.init()
    ringlet.init()
    rank, size = ringlet.rank(), ringlet.size()
    results = {
        "before": before,
        "size": size,
        "local": [ringlet.local_rank(), ringlet.local_size()],
        "cross": [ringlet.cross_rank(), ringlet.cross_size()],
        "average": ringlet.allreduce([1.0 * rank, 2.0]).tolist(),
        "scalar": ringlet.allreduce(float(rank), op="sum"),
        "numpy scalar": str(ringlet.allreduce(np.float32(rank), op=ringlet.Op.MAX).dtype),
        "maximum": ringlet.allreduce(np.array([rank]), op="max").tolist(),
        "broadcast": ringlet.broadcast(rank, size - 1),
        "gathered": ringlet.allgather(rank).tolist(),
        "rows": ringlet.allgather(np.full((rank, 2), rank)).shape,
        "scattered": ringlet.reduce_scatter(np.arange(size), op="sum").tolist(),
        "exchanged": ringlet.alltoall(np.arange(size) + 10 * rank)[0].tolist(),
        "started": ringlet.allreduce_async(2.0 * rank, op="min").wait(),
        "started rows": ringlet.allgather_async([rank]).wait().tolist(),
        "started broadcast": ringlet.broadcast_async([rank], 0).wait().tolist(),
        "started parts": ringlet.reduce_scatter_async(np.ones(size), "sum").wait().tolist(),
        "started exchange": ringlet.alltoall_async(np.full(size, rank)).wait()[0].tolist(),
        "started barrier": ringlet.barrier_async().wait(),
        "same communicator": ringlet.communicator().rank == rank,
    }
    ringlet.barrier()
    ringlet.shutdown()
    results["initialized after shutdown"] = ringlet.is_initialized()
    ringlet.init()
    results["again"] = ringlet.allreduce(1, op="sum")
    (Path(sys.argv[1]) / f"world-{rank}.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Times of Gloo's allreduce in a plain program of PyTorch: started by torchrun, prints seconds by bytes as JSON.

    torchrun --standalone --nproc-per-node 2 benchmarks/gloo_alone.py ROUNDS BYTES …

Nothing of Ringlet is imported; ``benchmarks.exchange`` runs it.
"""

from __future__ import annotations

import json
import sys
from statistics import median
from time import perf_counter

import torch
from torch import distributed

ROUND_SECONDS = 0.02
MAX_CALLS = 500


def seconds_of(num_bytes: int, num_rounds: int) -> float:
    """The slowest rank of each round, the median over rounds."""
    values = torch.zeros(max(num_bytes // 4, 1))
    first = _timed(values, 3)
    num_calls = torch.tensor(max(1, min(MAX_CALLS, round(ROUND_SECONDS / first))))
    distributed.broadcast(num_calls, 0)
    rounds = [_timed(values, int(num_calls)) for _ in range(num_rounds)]
    slowest = torch.tensor(rounds, dtype=torch.float64)
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    return median(slowest.tolist())


def _timed(values: torch.Tensor, num_calls: int) -> float:
    distributed.barrier()
    start = perf_counter()
    for _ in range(num_calls):
        distributed.all_reduce(values)
    return (perf_counter() - start) / num_calls


def main() -> None:
    """Measure every size."""
    distributed.init_process_group("gloo")
    num_rounds, *sizes = map(int, sys.argv[1:])
    found = {size: seconds_of(size, num_rounds) for size in sizes}
    if distributed.get_rank() == 0:
        print(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

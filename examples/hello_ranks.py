"""Every rank says who it is and they add up their numbers: ``ringlet run -n 4 examples/hello_ranks.py``."""

from __future__ import annotations

import os

import numpy as np

import ringlet


def main() -> None:
    """Works with any number of ranks, also alone: ``python examples/hello_ranks.py``."""
    ringlet.init()
    rank, size = ringlet.rank(), ringlet.size()
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"rank {rank} of {size} on {os.uname().nodename}, number {ringlet.local_rank()} there, {threads} threads")
    total = ringlet.allreduce(np.arange(3.0) * (rank + 1), op="sum")
    if rank == 0:
        print(f"[0 1 2] times (1 + … + {size}) is {total}")


if __name__ == "__main__":
    main()

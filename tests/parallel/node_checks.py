"""What the tests of the node communicator run on real ranks."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np

from ringlet.comm.contract import Communicator, Op


def crowded(communicator: Communicator) -> list[float]:
    """Many collectives of all sizes with all ranks on the processors of one, or of two."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {available[communicator.rank % min(2, len(available))]})
    results = []
    for number in range(60):
        array = np.full(1 + number * number * 50, float(communicator.rank + number))
        results.append(float(communicator.allreduce(array)[-1]))
        results.append(float(communicator.allreduce(array, Op.MAX)[0]))
        communicator.barrier()
        results.append(float(communicator.broadcast(array, number % communicator.size)[0]))
        results.append(float(communicator.allgather(array[: communicator.rank + 1]).sum()))
    return results


def _open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def _shared_files() -> list[str]:
    # folders there belong to other jobs that run at the same time, which keep their commits in them
    return sorted(path.name for path in Path("/dev/shm").glob("ringlet-*") if path.is_file())


def leaves_nothing(communicator: Communicator) -> dict[str, Any]:
    """Shared arrays, groups and started collectives come and go."""

    def use() -> None:
        array = communicator.shared_array((4, 1000), "float32")
        array[communicator.rank % 4] = 1.0
        communicator.barrier()
        assert array.any()
        group = communicator.group(range(communicator.size))
        assert group is not None
        group.start("allreduce", np.ones(10)).wait()
        group.shared_array(10, "int64")
        group.barrier()
        group.close()

    use()
    communicator.barrier()
    before = _open_files()
    for _ in range(10):
        use()
    communicator.barrier()
    return {"before": before, "after": _open_files(), "files": _shared_files()}


def shares_memory(communicator: Communicator) -> list[int]:
    """Every rank writes its row, all ranks see all rows; small, empty and larger than /dev/shm often is."""
    size, rank = communicator.size, communicator.rank
    array = communicator.shared_array((size, 3), np.int32)
    assert not array.any()
    assert array.ctypes.data % 64 == 0
    communicator.barrier()
    array[rank] = rank + 1
    communicator.barrier()
    assert communicator.shared_array((0, 3), "float64").shape == (0, 3)
    large = communicator.shared_array(100 << 20, np.uint8)
    large[rank::size][:5] = rank + 1
    communicator.barrier()
    assert large[:size].tolist() == list(range(1, size + 1))
    return [int(value) for value in array[:, 0]]


def groups(communicator: Communicator) -> Any:
    """Any ranks in any order, also groups of groups."""
    size, rank = communicator.size, communicator.rank
    backwards = communicator.group(range(size - 1, -1, -1))
    assert backwards is not None
    order = [int(value) for value in backwards.allgather(np.array([rank]))]
    odd = communicator.group(range(1, size, 2)) if size > 1 else None
    odd_sum = None if odd is None else int(odd.allreduce(np.array([rank]))[0])
    alone = backwards.group([0])
    return order, odd_sum, None if alone is None else alone.size

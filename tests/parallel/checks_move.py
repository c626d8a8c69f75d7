"""Checks of broadcast, allgather, alltoall, barrier and their forms for bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checks_common import NUMBERS, expect_error, values
from checks_reduce import dtype_of

from ringlet.comm.contract import Communicator

RECORD = [("key", "i4"), ("value", "f8")]


def moved(rank: int, shape: tuple[int, ...], name: str) -> Any:
    """Values of any dtype that may travel."""
    numbers = values(rank, shape, np.dtype("int64"))
    if name == "text":
        return numbers.astype("U7")
    if name == "date":
        return numbers.astype("M8[s]")
    if name == "record":
        array = np.zeros(shape, RECORD)
        array["key"], array["value"] = numbers, numbers / 2
        return array
    return values(rank, shape, dtype_of(name))


def broadcast_of(name: str) -> Callable[[Communicator], None]:
    def check(comm: Communicator) -> None:
        for root in range(comm.size):
            result = comm.broadcast(moved(comm.rank, (3, 4), name), root)
            wanted = moved(root, (3, 4), name)
            assert result.dtype == wanted.dtype
            np.testing.assert_array_equal(result, wanted)

    return check


def allgather_of(name: str) -> Callable[[Communicator], None]:
    """Ranks bring different numbers of rows, the first none."""

    def check(comm: Communicator) -> None:
        parts = [moved(rank, (2 * rank % 5, 3), name) for rank in range(comm.size)]
        result = comm.allgather(parts[comm.rank])
        assert result.dtype == parts[0].dtype
        np.testing.assert_array_equal(result, np.concatenate(parts))

    return check


def alltoall_of(name: str) -> Callable[[Communicator], None]:
    """Rank s sends (s + 2 r) % 4 rows to rank r."""

    def check(comm: Communicator) -> None:
        splits = [[(source + 2 * target) % 4 for target in range(comm.size)] for source in range(comm.size)]
        parts = [moved(source, (sum(splits[source]), 2), name) for source in range(comm.size)]
        blocks = [np.split(part, np.cumsum(split)[:-1]) for part, split in zip(parts, splits, strict=True)]
        result, received = comm.alltoall(parts[comm.rank], splits[comm.rank])
        assert result.dtype == parts[0].dtype
        np.testing.assert_array_equal(result, np.concatenate([row[comm.rank] for row in blocks]))
        np.testing.assert_array_equal(received, [split[comm.rank] for split in splits])
        assert received.dtype == np.int64

    return check


def broadcast_of_any_shape(comm: Communicator) -> None:
    root = comm.size - 1
    for shape in ((), (0,), (2, 0, 3), (1,), (2, 3, 4)):
        result = comm.broadcast(values(comm.rank, shape, np.dtype("float32")), root)
        assert result.shape == shape
        np.testing.assert_array_equal(result, values(root, shape, np.dtype("float32")))


def broadcast_into_out(comm: Communicator) -> None:
    root = comm.size // 2
    wanted = values(root, (4, 6), np.dtype("float64"))
    mine = values(comm.rank, (4, 6), np.dtype("float64"))
    out = np.empty_like(mine)
    assert comm.broadcast(mine, root, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(mine, values(comm.rank, (4, 6), np.dtype("float64")))
    wide = np.zeros((4, 12))
    comm.broadcast(mine[::-1], root, out=wide[:, ::2])
    np.testing.assert_array_equal(wide[:, ::2], wanted[::-1])
    assert comm.broadcast(mine, root, out=mine) is mine
    np.testing.assert_array_equal(mine, wanted)


def broadcast_refuses_a_root_that_is_no_rank(comm: Communicator) -> None:
    expect_error(lambda: comm.broadcast(np.ones(3), comm.size), "rank")
    expect_error(lambda: comm.broadcast(np.ones(3), -1), "rank")


def broadcast_of_large_arrays(comm: Communicator) -> None:
    wanted = np.arange(2_500_003, dtype=np.float32)
    for root in (0, comm.size - 1):
        result = comm.broadcast(wanted if comm.rank == root else np.zeros_like(wanted), root)
        np.testing.assert_array_equal(result, wanted)


def allgather_of_nothing(comm: Communicator) -> None:
    assert comm.allgather(np.zeros((0, 3))).shape == (0, 3)
    assert comm.allgather(np.zeros((comm.rank, 0), np.int16)).shape == (sum(range(comm.size)), 0)


def allgather_of_large_arrays(comm: Communicator) -> None:
    lengths = [700_001 * (rank + 1) // (rank % 2 + 1) for rank in range(comm.size)]
    result = comm.allgather(np.full(lengths[comm.rank], comm.rank, np.int16))
    np.testing.assert_array_equal(result, np.repeat(np.arange(comm.size, dtype=np.int16), lengths))


def allgather_of_strided_arrays(comm: Communicator) -> None:
    parts = [values(rank, (4, 6), np.dtype("int32")) for rank in range(comm.size)]
    np.testing.assert_array_equal(comm.allgather(parts[comm.rank].T), np.concatenate([part.T for part in parts]))
    np.testing.assert_array_equal(
        comm.allgather(parts[comm.rank][::-2]), np.concatenate([part[::-2] for part in parts])
    )


def alltoall_in_equal_parts(comm: Communicator) -> None:
    array = np.arange(2 * comm.size) + 100 * comm.rank
    result, received = comm.alltoall(array)
    wanted = [100 * source + 2 * comm.rank + i for source in range(comm.size) for i in range(2)]
    np.testing.assert_array_equal(result, wanted)
    np.testing.assert_array_equal(received, [2] * comm.size)


def alltoall_of_nothing(comm: Communicator) -> None:
    result, received = comm.alltoall(np.zeros((0, 4), np.float16))
    assert result.shape == (0, 4)
    np.testing.assert_array_equal(received, [0] * comm.size)
    splits = [3 if target == 0 else 0 for target in range(comm.size)]  # everything to rank 0
    result, received = comm.alltoall(np.full(3, comm.rank), splits)
    np.testing.assert_array_equal(received, [3 if comm.rank == 0 else 0] * comm.size)
    np.testing.assert_array_equal(result, np.repeat(np.arange(comm.size), 3) if comm.rank == 0 else [])


def alltoall_of_large_arrays(comm: Communicator) -> None:
    count = 300_007
    array = np.repeat(np.arange(comm.size) + 10 * comm.rank, count)
    result, _ = comm.alltoall(array, [count] * comm.size)
    np.testing.assert_array_equal(result, np.repeat(10 * np.arange(comm.size) + comm.rank, count))


def alltoall_refuses_wrong_splits(comm: Communicator) -> None:
    expect_error(lambda: comm.alltoall(np.ones(4), [4] + [1] * (comm.size - 1) if comm.size > 1 else [5]), "split")
    expect_error(lambda: comm.alltoall(np.ones(4), [1] * (comm.size + 1)), "split")
    expect_error(lambda: comm.alltoall(np.ones(4), [5, -1] + [0] * (comm.size - 2)), "split")
    if comm.size > 1:
        expect_error(lambda: comm.alltoall(np.ones(comm.size + 1)), "equal")


def bytes_of_every_rank(comm: Communicator) -> None:
    for root in range(comm.size):
        for data in (b"", b"\x00\xff", bytes(1000) + b"end"):
            assert comm.broadcast_bytes(data if comm.rank == root else None, root) == data
    wanted = [bytes([rank]) * (3 * rank) for rank in range(comm.size)]
    assert comm.allgather_bytes(wanted[comm.rank]) == wanted


def barrier_waits_for_all(comm: Communicator) -> None:
    """What every rank did before the barrier has happened for all after it."""
    with tempfile.TemporaryDirectory() as mine:
        folder = Path(comm.broadcast_bytes(mine.encode() if comm.rank == 0 else None).decode())
        for turn in range(20):
            (folder / f"{turn}-{comm.rank}").touch()
            comm.barrier()
            assert len(list(folder.glob(f"{turn}-*"))) == comm.size
        comm.barrier()


def random_moves(comm: Communicator) -> None:
    """Shapes, dtypes and splits drawn by a generator that is the same on all ranks."""
    random = np.random.default_rng(30)
    for _ in range(40):
        name = str(random.choice([*NUMBERS, "text", "date", "record"]))
        width = tuple(int(length) for length in random.integers(0, 4, random.integers(0, 3)))
        splits = random.integers(0, 5, (comm.size, comm.size)).tolist()
        parts = [moved(rank, (sum(splits[rank]), *width), name) for rank in range(comm.size)]
        np.testing.assert_array_equal(comm.allgather(parts[comm.rank]), np.concatenate(parts))
        result, received = comm.alltoall(parts[comm.rank], splits[comm.rank])
        starts = [sum(split[: comm.rank]) for split in splits]
        blocks = [
            part[start : start + split[comm.rank]] for part, start, split in zip(parts, starts, splits, strict=True)
        ]
        np.testing.assert_array_equal(result, np.concatenate(blocks))
        np.testing.assert_array_equal(received, [split[comm.rank] for split in splits])


_MOVED = (*NUMBERS, "text", "date", "record")
CHECKS: dict[str, Callable[[Communicator], None]] = {
    **{f"broadcast_of_{name}": broadcast_of(name) for name in _MOVED},
    **{f"allgather_of_{name}": allgather_of(name) for name in _MOVED},
    **{f"alltoall_of_{name}": alltoall_of(name) for name in _MOVED},
    **{
        check.__name__: check
        for check in (
            broadcast_of_any_shape,
            broadcast_into_out,
            broadcast_refuses_a_root_that_is_no_rank,
            broadcast_of_large_arrays,
            allgather_of_nothing,
            allgather_of_large_arrays,
            allgather_of_strided_arrays,
            alltoall_in_equal_parts,
            alltoall_of_nothing,
            alltoall_of_large_arrays,
            alltoall_refuses_wrong_splits,
            bytes_of_every_rank,
            barrier_waits_for_all,
            random_moves,
        )
    },
}

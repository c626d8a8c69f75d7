"""Checks of gradient compression, run on real ranks by test_comm_compression.py."""

from __future__ import annotations

import numpy as np

from ringlet.comm.compression import TopK, parse_compression
from ringlet.comm.contract import Communicator


def rounded_sums(comm: Communicator) -> bool:
    """Within the rounding of 16 bits of the exact sum, the same bits everywhere, the input untouched."""
    parts = [np.random.default_rng(rank).standard_normal(1013).astype(np.float32) for rank in range(comm.size)]
    exact = np.sum(parts, axis=0, dtype=np.float64)
    largest = np.max(np.abs(parts), axis=0) * comm.size
    for name, epsilon in (("none", 1e-6), ("fp16", 2.0**-11), ("bf16", 2.0**-8)):
        mine, out = parts[comm.rank].copy(), np.empty(1013, np.float32)
        assert parse_compression(name).allreduce(comm, mine, out=out, key=0) is out
        assert (np.abs(out - exact) <= 2 * epsilon * largest).all(), name
        np.testing.assert_array_equal(mine, parts[comm.rank])
        assert len(set(comm.allgather_bytes(out.tobytes()))) == 1
        parse_compression(name).allreduce(comm, mine, out=mine, key=0)
        np.testing.assert_array_equal(mine, out)
    return True


def nothing_is_lost(comm: Communicator) -> bool:
    """What top-k has sent and what it keeps add up to all that was put in; whole numbers, so exactly."""
    random = np.random.default_rng(comm.rank)
    method = TopK(0.03)
    sent, put_in = {}, {}
    for turn in range(40):
        key = "even" if turn % 2 == 0 else "odd"
        array = random.integers(-50, 51, 400 if key == "even" else 77).astype(np.float32)
        out = np.full_like(array, np.nan)
        method.allreduce(comm, array, out=out, key=key)
        sent[key] = sent.get(key, 0) + out
        put_in[key] = put_in.get(key, 0) + array
        assert np.count_nonzero(out) <= np.ceil(0.03 * array.size) * comm.size
        assert len(set(comm.allgather_bytes(out.tobytes()))) == 1
    for key, total in sent.items():
        everything = comm.allreduce(put_in[key])
        kept = comm.allreduce(method.residuals[key])
        np.testing.assert_array_equal(total + kept, everything)
        assert kept.any()
    return True


def largest_first(comm: Communicator) -> list[float]:
    """Each rank sends its largest; with the ratio 1 the sum is exact."""
    array = np.zeros(100, np.float64)
    array[comm.rank] = -100.0 - comm.rank
    array[50:] = 0.5
    out = np.empty_like(array)
    TopK(0.01).allreduce(comm, array, out=out)
    whole = np.empty_like(array)
    TopK(1.0).allreduce(comm, array, out=whole)
    np.testing.assert_array_equal(whole, comm.allreduce(array))
    return [float(value) for value in out[out != 0]]

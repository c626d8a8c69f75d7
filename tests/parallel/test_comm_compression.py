"""Compressed sums: how exact they are, that nothing is lost, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from harness import run_ranks

from ringlet.comm.compression import HalfPrecision, NoCompression, TopK, parse_compression
from ringlet.comm.single import SingleCommunicator
from ringlet.errors import ConfigError, UsageError

CHECKS = Path(__file__).with_name("compression_checks.py")
ALONE = {"RINGLET_RANKS_PER_NODE": "1"}


@pytest.mark.parametrize("communicator", ["node", "mpi"])
def test_sixteen_bits_round_and_no_more(communicator: str) -> None:
    assert run_ranks((CHECKS, "rounded_sums"), 3, communicator=communicator, environment=ALONE) == [True] * 3


def test_top_k_loses_nothing() -> None:
    assert run_ranks((CHECKS, "nothing_is_lost"), 3, communicator="mpi", environment=ALONE) == [True] * 3


def test_top_k_sends_the_largest() -> None:
    assert run_ranks((CHECKS, "largest_first"), 2) == [[-100.0, -101.0]] * 2


def test_top_k_passes_on_what_is_not_finite_and_forgets_it() -> None:
    comm, method = SingleCommunicator(), TopK(0.25)
    first = method.allreduce(comm, np.array([1.0, np.nan, 2.0, 3.0]), out=np.empty(4))
    assert np.isnan(first).tolist() == [False, True, False, False]
    assert method.residuals[None].tolist() == [1.0, 0.0, 2.0, 3.0]


def test_top_k_refuses_another_array_under_a_key() -> None:
    comm, method = SingleCommunicator(), TopK(0.5)
    method.allreduce(comm, np.ones(4), out=np.empty(4), key="weights")
    with pytest.raises(ConfigError, match="5 elements of float64 under the key 'weights'"):
        method.allreduce(comm, np.ones(5), out=np.empty(5), key="weights")


def test_top_k_of_nothing_is_nothing() -> None:
    assert TopK(0.1).allreduce(SingleCommunicator(), np.empty(0), out=np.empty(0)).size == 0


def test_values_beyond_float16_become_infinite_not_wrong() -> None:
    out = HalfPrecision("float16").allreduce(SingleCommunicator(), np.array([1e6, 1.0]), out=np.empty(2))
    assert out.tolist() == [np.inf, 1.0]


def test_names_are_understood() -> None:
    assert isinstance(parse_compression("none"), NoCompression)
    assert isinstance(parse_compression("FP16"), HalfPrecision)
    assert isinstance(parse_compression(" bf16 "), HalfPrecision)
    method = parse_compression("topk:0.01")
    assert isinstance(method, TopK)
    assert method.ratio == 0.01


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown compression ''. Known: bf16, fp16, none, topk"),
        ("fp8", "unknown compression 'fp8'. Did you mean 'fp16'?"),
        ("topk", "share: compression 'topk' needs a value: topk:SHARE"),
        ("topk:", "names no share: expected topk:SHARE"),
        ("topk:a", "expected a number after the colon: topk:SHARE"),
        ("topk:0", "share: 0.0 is out of range, expected greater than 0"),
        ("topk:1.5", "share: 1.5 is out of range, expected at most 1"),
        ("topk:nan", "share: nan is not a finite number"),
        ("fp16:2", "fp16 takes nothing after a colon. Expected fp16"),
    ],
)
def test_nonsense_is_refused_with_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_compression(text)
    assert message in str(caught.value)

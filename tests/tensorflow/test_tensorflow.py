"""Every check of ``ringlet.tensorflow`` on two and three ranks."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tf_checks

if find_spec("tensorflow") is None:
    pytest.skip("tensorflow is not installed", allow_module_level=True)

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "RINGLET_STALL_ERROR_SECONDS": "60",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", tf_checks.names())
@pytest.mark.parametrize(
    "num_ranks", [pytest.param(number, marks=pytest.mark.xdist_group(f"tensorflow-{number}")) for number in (2, 3)]
)
def test_it_keeps_horovods_promises(num_ranks: int, check: str, run_once: Callable[..., list[Any]]) -> None:
    target = (Path(__file__).with_name("tf_checks.py"), "run_all")
    results = run_once(f"tensorflow-{num_ranks}", target, num_ranks, environment=ENVIRONMENT, timeout=240)
    failures = [f"rank {rank}: {result[check]}" for rank, result in enumerate(results) if result[check] is not None]
    assert not failures, "\n".join(failures)

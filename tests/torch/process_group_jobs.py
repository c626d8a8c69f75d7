"""Several checks of the process group in one start of ranks, since PyTorch takes long to load: what each gave."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import process_group_answers
import process_group_checks
import process_group_training

from ringlet.comm.contract import Communicator


def three_ranks(comm: Communicator) -> dict[str, Any]:
    """The last check loses a rank."""
    return _all(
        comm, process_group_training.plain_training, process_group_answers.answers, process_group_checks.everything
    )


def two_ranks(comm: Communicator) -> dict[str, Any]:
    """Stock DDP."""
    return _all(comm, process_group_training.ddp_variants)


def _all(comm: Communicator, *checks: Callable[[Communicator], Any]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for check in checks:
        sys.stderr.write(f"rank {comm.rank}: {check.__name__}\n")
        try:
            results[check.__name__] = {"value": check(comm)}
        except Exception:
            results[check.__name__] = {"error": traceback.format_exc()}
    return results

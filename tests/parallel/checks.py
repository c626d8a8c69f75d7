"""All checks of the contract that every communicator keeps; one job runs them all, in this order, on every rank."""

from __future__ import annotations

import sys
import traceback

import checks_move
import checks_reduce
import checks_structure
import pytest

from ringlet.comm.contract import Communicator

SKIPPED = "skipped: "
"""Begins the result of a check that has nothing to say about this communicator."""

CHECKS = {**checks_reduce.CHECKS, **checks_move.CHECKS, **checks_structure.CHECKS}


def run_all(comm: Communicator, only: str = "") -> dict[str, str | None]:
    """For every check (whose name contains ``only``) None, or how it failed on this rank, or why it was skipped.

    Names are printed as checks begin, so that the output of a job that hangs tells where.
    """
    results: dict[str, str | None] = {}
    for name, check in CHECKS.items():
        if only not in name:
            continue
        sys.stderr.write(f"rank {comm.rank}: {name}\n")
        try:
            check(comm)
        except pytest.skip.Exception as reason:
            results[name] = f"{SKIPPED}{reason.msg}"
        except Exception:
            results[name] = traceback.format_exc()
            sys.stderr.write(results[name] or "")
        else:
            results[name] = None
    return results

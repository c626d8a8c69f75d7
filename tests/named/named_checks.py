"""All checks of named collectives; one job runs them all, in this order, over one group."""

from __future__ import annotations

import sys
import traceback
from time import monotonic

import checks_errors
import checks_operations
import checks_order

from ringlet.comm.contract import Communicator
from ringlet.named import NamedCollectives

CHECKS = {check.__name__: check for check in [*checks_operations.CHECKS, *checks_order.CHECKS, *checks_errors.CHECKS]}


def run_all(comm: Communicator, names: list[str]) -> dict[str, str | None]:
    """For each of these checks None, or how it failed on this rank. What is printed tells where a job hangs."""
    own = comm.group(range(comm.size))
    assert own is not None
    group = NamedCollectives(own, range(comm.size))
    results: dict[str, str | None] = {}
    began = monotonic()
    for name in names:
        sys.stderr.write(f"rank {comm.rank}: {name} at {monotonic() - began:.2f} s\n")
        try:
            CHECKS[name](group)
        except Exception:
            results[name] = traceback.format_exc()
            sys.stderr.write(results[name] or "")
        else:
            results[name] = None
    group.close()
    return results

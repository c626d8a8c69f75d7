"""Named collectives on real ranks: the same checks over every communicator, each job run once for all of its checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from named_checks import CHECKS

SOME = (
    "a_group_runs_together",
    "allreduce_combines_every_dtype_by_every_op",
    "alltoall_exchanges_rows",
    "arguments_of_one_rank_that_make_no_sense_raise_everywhere",
    "buffers_are_reduced_in_place",
    "join_gives_zeros_for_ranks_that_have_run_out",
    "joined_ranks_do_not_touch_their_buffers",
    "many_small_ones_at_once_are_all_right",
    "one_rank_may_be_ahead_while_all_pass_a_barrier",
    "ranks_may_submit_in_any_order",
    "shapes_that_differ_raise_everywhere",
)
"""What is checked where wires are slow, or differ little from others."""


class Job(NamedTuple):
    """So many ranks of a communicator, on machines of so many ranks (0: as it is)."""

    communicator: str
    num_ranks: int
    ranks_per_node: int = 0
    checks: tuple[str, ...] = tuple(CHECKS)

    def __str__(self) -> str:
        cut = f"-{self.ranks_per_node}-per-node" if self.ranks_per_node else ""
        return f"named-{self.communicator}-{self.num_ranks}{cut}"


JOBS = [
    Job("single", 1),
    *(Job("node", num_ranks) for num_ranks in (2, 3, 4)),
    Job("mpi", 4, 2),
    Job("mpi", 3, 2, SOME),
    Job("torch", 2, 1, SOME),
]


@pytest.mark.parametrize(
    ("job", "check"), [pytest.param(job, check, id=f"{job}-{check}") for job in JOBS for check in job.checks]
)
def test_named_collectives_keep_their_promises(job: Job, check: str, run_once: Callable[..., list[Any]]) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": str(job.ranks_per_node)} if job.ranks_per_node else {}
    target = (Path(__file__).with_name("named_checks.py"), "run_all")
    options = {"communicator": job.communicator, "environment": environment, "arguments": {"names": list(job.checks)}}
    results = run_once(str(job), target, job.num_ranks, timeout=200, **options)
    failures = [f"rank {rank}: {result[check]}" for rank, result in enumerate(results) if result[check] is not None]
    assert not failures, "\n".join(failures)

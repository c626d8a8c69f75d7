"""One contract for every communicator: the same checks at 1 to 4 ranks, each job run once for all of its checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from checks import CHECKS, SKIPPED


class Job(NamedTuple):
    """So many ranks of a communicator, on machines of so many ranks (0: as it is)."""

    communicator: str
    num_ranks: int
    ranks_per_node: int = 0

    def __str__(self) -> str:
        cut = f"-{self.ranks_per_node}-per-node" if self.ranks_per_node else ""
        return f"{self.communicator}-{self.num_ranks}{cut}"


JOBS = [
    Job("single", 1),
    *(Job("node", num_ranks) for num_ranks in (1, 2, 3, 4)),
    *(Job("mpi", num_ranks) for num_ranks in (1, 2, 3, 4)),
    *(Job("mpi", num_ranks, 1) for num_ranks in (2, 3, 4)),
    *(Job("mpi", num_ranks, 2) for num_ranks in (3, 4)),
    *(Job("torch", num_ranks) for num_ranks in (1, 2, 3, 4)),
    Job("torch", 3, 2),
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    "job", [pytest.param(job, id=str(job), marks=pytest.mark.xdist_group(str(job))) for job in JOBS]
)
def test_every_communicator_keeps_the_contract(job: Job, check: str, run_once: Callable[..., list[Any]]) -> None:
    environment = {"RINGLET_RANKS_PER_NODE": str(job.ranks_per_node)} if job.ranks_per_node else {}
    target = (Path(__file__).with_name("checks.py"), "run_all")
    results = run_once(
        str(job), target, job.num_ranks, communicator=job.communicator, environment=environment, timeout=280
    )
    outcomes = [result[check] for result in results]
    if all(outcome is not None and outcome.startswith(SKIPPED) for outcome in outcomes):
        pytest.skip(outcomes[0].removeprefix(SKIPPED))
    failures = [f"rank {rank}: {outcome}" for rank, outcome in enumerate(outcomes) if outcome is not None]
    assert not failures, "\n".join(failures)

"""Every check of ``ringlet.torch`` on two and three ranks of one machine, and on two machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hvd_checks
import pytest

pytest.importorskip("torch")


class Job(NamedTuple):
    """So many ranks of a communicator, on machines of so many ranks (0: as it is)."""

    communicator: str
    num_ranks: int
    ranks_per_node: int = 0

    def __str__(self) -> str:
        cut = f"-{self.ranks_per_node}-per-node" if self.ranks_per_node else ""
        return f"{self.communicator}-{self.num_ranks}{cut}"


JOBS = [Job("node", 2), Job("node", 3), Job("mpi", 2, 1)]


@pytest.mark.parametrize("check", hvd_checks.names())
@pytest.mark.parametrize(
    "job", [pytest.param(job, id=str(job), marks=pytest.mark.xdist_group(f"hvd-{job}")) for job in JOBS]
)
def test_it_keeps_horovods_promises(job: Job, check: str, run_once: Callable[..., list[Any]], job_folder: Path) -> None:
    environment = {"RINGLET_STALL_ERROR_SECONDS": "40"}
    if job.ranks_per_node:
        environment["RINGLET_RANKS_PER_NODE"] = str(job.ranks_per_node)
    folder = job_folder / f"files-of-torch-{job}"
    folder.mkdir(exist_ok=True)
    results = run_once(
        f"torch-{job}",
        (Path(__file__).with_name("hvd_checks.py"), "run_all"),
        job.num_ranks,
        communicator=job.communicator,
        environment=environment,
        timeout=280,
        arguments={"folder": str(folder)},
    )
    failures = [f"rank {rank}: {result[check]}" for rank, result in enumerate(results) if result[check] is not None]
    assert not failures, "\n".join(failures)

"""The process group "ringlet": collectives, messages, groups and limits on real ranks, and DDP over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import run_ranks

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent
JOBS, CHECKS = (FOLDER / f"process_group_{name}.py" for name in ("jobs", "checks"))
ALONE = {"RINGLET_RANKS_PER_NODE": "1"}
"""Every rank is a machine of its own: what travels, travels by the wire."""


NUM_RANKS = {"three_ranks": 3, "two_ranks": 2}
"""Functions of ``process_group_jobs``: several checks in one start of ranks."""
of_three_ranks, of_two_ranks = (pytest.mark.xdist_group(f"process-group-{job}") for job in NUM_RANKS)


@pytest.fixture(scope="session")
def values(run_once: Callable[..., list[Any]]) -> Callable[[str, str], list[Any]]:
    """``values(job, check)``: what a check gave on every rank."""

    def of(job: str, check: str) -> list[Any]:
        results = run_once(f"process-group-{job}", (JOBS, job), NUM_RANKS[job], timeout=280)
        found = [result[check] for result in results]
        errors = [f"rank {rank}: {entry['error']}" for rank, entry in enumerate(found) if "error" in entry]
        assert not errors, "\n".join(errors)
        return [entry["value"] for entry in found]

    return of


@of_three_ranks
def test_collectives_messages_groups_limits_and_the_loss_of_a_rank(values: Any) -> None:
    *others, last = values("three_ranks", "everything")
    limits = others[0]["limits"]
    assert "CommunicationError: allreduce was not done within 1 s: not all ranks have called it" in limits[0]
    assert limits[1].startswith("CommunicationError: allreduce was not done within 1 s")
    assert limits[2].startswith("CommunicationError: allreduce was not done within 0.05 s")
    assert limits[3].startswith("CommunicationError: recv from rank 1 with tag 0 was not done within 1 s")
    assert last["lost"] == "gone"
    told = [result["lost"] for result in others]
    assert any("rank 2 of 3 on this machine, which has closed its communicator" in message for message in told)


@pytest.mark.parametrize("wire", ["torch", "mpi"])
def test_collectives_messages_and_groups_between_machines(wire: str) -> None:
    run_ranks((CHECKS, "collectives_and_groups"), 2, communicator=wire, environment=ALONE, timeout=240)


@of_two_ranks
def test_every_way_of_ddp_equals_training_on_the_joined_batch(values: Any) -> None:
    values("two_ranks", "ddp_variants")


@of_three_ranks
def test_ddp_on_three_ranks_equals_training_on_the_joined_batch(values: Any) -> None:
    values("three_ranks", "plain_training")


@of_three_ranks
def test_the_group_answers_what_pytorch_asks_besides_collectives(values: Any) -> None:
    values("three_ranks", "answers")


def test_names_that_are_private_to_pytorch_are_still_there() -> None:
    """What the backend leans on besides PyTorch's documented interface; see ``ringlet.torch_backend``."""
    from importlib import import_module

    from ringlet import torch_backend

    handlers = import_module("torch.distributed.rendezvous")._rendezvous_handlers
    assert callable(handlers["env"])
    torch_backend.register()
    ours = handlers["env"]
    torch_backend.register()
    assert handlers["env"] is ours
    work = torch._C._distributed_c10d._create_work_from_future
    failed = torch.futures.Future()
    child = failed.then(lambda _: 1 / 0)
    failed.set_result(None)
    assert work(child).wait(), "works out of futures raise now: RingletWork could be one of them"

"""The process group "ringlet": collectives, messages, groups and limits on real ranks, and DDP over it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import run_ranks

torch = pytest.importorskip("torch")

FOLDER = Path(__file__).parent
CHECKS, TRAINING, LIBRARIES = (FOLDER / f"process_group_{name}.py" for name in ("checks", "training", "libraries"))
ALONE = {"RINGLET_RANKS_PER_NODE": "1"}
"""Every rank is a machine of its own: what travels, travels by the wire."""


def test_collectives_messages_groups_limits_and_the_loss_of_a_rank() -> None:
    *others, last = run_ranks((CHECKS, "everything"), 3, timeout=240)
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


def test_every_way_of_ddp_equals_training_on_the_joined_batch() -> None:
    run_ranks((TRAINING, "ddp_variants"), 2, timeout=240)


def test_ddp_on_three_ranks_equals_training_on_the_joined_batch() -> None:
    run_ranks((TRAINING, "plain_training"), 3, timeout=240)


def _check_library(results: list[dict[str, Any]]) -> None:
    first = results[0]
    assert all(result["digest"] == first["digest"] for result in results)
    assert all(result["processes"] == len(results) for result in results)
    assert first["losses"][0] > first["losses"][-1]


def test_accelerate_takes_over_the_group() -> None:
    pytest.importorskip("accelerate", reason="needs Accelerate: pip install accelerate")
    results = run_ranks((LIBRARIES, "with_accelerate"), 2, timeout=240)
    _check_library(results)
    assert results[0]["wrapped"] == "DistributedDataParallel"
    assert results[0]["losses"] == results[1]["losses"]


def test_lightning_makes_the_group_by_its_name() -> None:
    pytest.importorskip("lightning", reason="needs Lightning: pip install lightning")
    results = run_ranks((LIBRARIES, "with_lightning"), 2, communicator="torch", timeout=240)
    _check_library(results)
    assert results[0]["backend"] == "ringlet"


def test_pytorch_finds_the_backend_by_itself_without_loading_ringlet(tmp_path: Path) -> None:
    """By the entry point of an installed package."""
    package = tmp_path / "ringlet_entry-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: ringlet-entry\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[torch.backends]\nringlet = ringlet.torch_backend:register\n")
    code = (
        "import sys, torch\n"
        "loaded = sorted(name for name in sys.modules if name.startswith('ringlet'))\n"
        "print(torch.distributed.is_backend_available('ringlet'), *loaded)"
    )
    source = str(Path(__import__("ringlet").__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), source))}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (found.stdout, found.stderr) == ("True ringlet ringlet.torch_backend\n", "")


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

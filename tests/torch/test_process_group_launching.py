"""One script with stock DDP under every launcher: ``ringlet run``, mpiexec and torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from launching import run_script

import ringlet

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("ddp_script.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("launcher", ["ringlet", "mpiexec", "torchrun"])
def test_stock_ddp_runs_under_every_launcher(launcher: str, tmp_path: Path) -> None:
    """Also if the script does not end the group itself."""
    ended = run_script(launcher, SCRIPT, tmp_path, *(["leave"] if launcher != "torchrun" else []))
    assert ended.returncode == 0, ended.stderr
    found = [json.loads((tmp_path / f"ddp-{rank}.json").read_text()) for rank in range(2)]
    assert [entry["rank"] for entry in found] == [0, 1]
    if launcher != "mpiexec":
        assert [entry["told before"] for entry in found] == [["0", "2", "0", "2"], ["1", "2", "1", "2"]]
    assert [entry["local rank"] for entry in found] == ["0", "1"]
    assert {entry["size"] for entry in found} == {2}
    assert {entry["communicator"] for entry in found} == {"node"}
    assert len({entry["digest"] for entry in found}) == 1


def test_programs_need_not_import_ringlet(tmp_path: Path) -> None:
    """PyTorch calls the entry points of installed packages, without loading more of them: one declared as ours is."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    information = tmp_path / "ringlet_declared-1.dist-info"
    information.mkdir()
    lines = [f"{name} = {target}" for name, target in declared["torch.backends"].items()]
    (information / "entry_points.txt").write_text("\n".join(["[torch.backends]", *lines]), encoding="utf-8")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ringlet-declared\nVersion: 1\n")
    code = (
        "import sys, torch\n"
        "loaded = sorted(name for name in sys.modules if name.startswith('ringlet'))\n"
        "d = torch.distributed\n"
        "print('ringlet' in d.Backend.backend_list, d.is_backend_available('ringlet'), *loaded)"
    )
    paths = [str(tmp_path), str(Path(ringlet.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("True True ringlet ringlet.torch_backend\n", "")


def test_an_exception_on_one_rank_is_told_and_ends_all(tmp_path: Path) -> None:
    """PyTorch's hook for exceptions holds back what others print; under mpiexec it must come out all the same."""
    ended = run_script("mpiexec", SCRIPT, tmp_path, "fail")
    assert ended.returncode != 0
    assert "ValueError: rank 1 has had enough" in ended.stderr + ended.stdout


def test_torchrun_restarts_a_job_that_lost_a_rank(tmp_path: Path) -> None:
    """The second attempt meets in the same store as the first, whose ranks have left their keys there."""
    ended = run_script("torchrun", SCRIPT, tmp_path, "fail-once", options=("--max-restarts", "1"))
    assert ended.returncode == 0, ended.stderr
    assert "ValueError: rank 1 fails once" in ended.stderr
    found = [json.loads((tmp_path / f"ddp-{rank}.json").read_text()) for rank in range(2)]
    assert [entry["restarts"] for entry in found] == ["1", "1"]
    assert len({entry["digest"] for entry in found}) == 1

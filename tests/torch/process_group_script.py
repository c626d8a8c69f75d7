"""PyTorch's and other people's ways to train over the backend "ringlet", as a program that any launcher starts.

Leaves for every rank a JSON file: what each check has given. The first error ends the job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import process_group_libraries
import process_group_parallelism
import torch.distributed as dist

import ringlet.torch  # noqa: F401  makes the backend known


def main() -> None:
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    _begin()
    results = {check.__name__: _result(check, folder) for check in process_group_parallelism.CHECKS}
    for check in process_group_libraries.CHECKS:
        if not ("TORCHELASTIC_RUN_ID" in os.environ and check in process_group_libraries.MAKE_GROUPS):
            _begin()
        else:
            _end()
        results[check.__name__] = _result(check, folder)
    _end()
    (folder / f"{rank}.json").write_text(json.dumps(results), encoding="utf-8")


def _begin() -> None:
    if not dist.is_initialized():
        dist.init_process_group("ringlet", timeout=timedelta(minutes=1))


def _end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _result(check: Callable[[Path], Any], folder: Path) -> dict[str, Any]:
    sys.stderr.write(f"{check.__name__}\n")
    try:
        return {"value": check(folder)}
    except ModuleNotFoundError as error:
        return {"missing": f"needs {error.name}: pip install {error.name}"}


if __name__ == "__main__":
    main()

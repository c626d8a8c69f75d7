"""Tests here start real ranks by the harness of tests/parallel."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

PARALLEL = Path(__file__).parents[1] / "parallel"
sys.path.insert(0, str(PARALLEL))
sys.path.insert(0, str(Path(__file__).parent))  # tests and checks here import each other

_specification = importlib.util.spec_from_file_location("parallel_conftest", PARALLEL / "conftest.py")
assert _specification is not None
assert _specification.loader is not None
_parallel = importlib.util.module_from_spec(_specification)
_specification.loader.exec_module(_parallel)

job_folder, run_once = _parallel.job_folder, _parallel.run_once

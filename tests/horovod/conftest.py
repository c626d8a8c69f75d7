"""Horovod programs are launched as the launcher's tests launch theirs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "launch"))

import launched

begin = launched.begin

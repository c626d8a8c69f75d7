"""``python -m horovod.runner.launch``: the same as ``horovodrun``."""

from __future__ import annotations

import sys

from ringlet.__main__ import horovodrun as run_commandline

__all__ = ["run_commandline"]

if __name__ == "__main__":
    sys.exit(run_commandline())

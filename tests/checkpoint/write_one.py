"""Writes checkpoint 2 beside checkpoint 1: ``python write_one.py DIRECTORY``; run under fault injection."""

from __future__ import annotations

import sys

from checkpoint_samples import make_checkpoint

from ringlet.checkpoint import CheckpointStore
from ringlet.errors import CheckpointError

if __name__ == "__main__":
    try:
        CheckpointStore(sys.argv[1]).write(make_checkpoint(2))
    except CheckpointError as error:
        sys.exit(f"told: {error}")

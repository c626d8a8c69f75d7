"""Names that the command line needs before anything is loaded."""

from __future__ import annotations

OWN_RUN_OPTIONS = (
    "model",
    "engine",
    "strategy",
    "local_batch_size",
    "global_batch_size",
    "batch_size",
    "num_epochs",
    "steps_per_epoch",
    "partition",
    "run_dir",
    "history_file",
    "timeline",
    "profile",
    "resume",
    "evaluate_only",
    "parallel",
)
"""Options of a run that a study sets itself."""

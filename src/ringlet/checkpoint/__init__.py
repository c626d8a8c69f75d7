"""Stage 8: takes all that training needs to resume (``Checkpoint``), gives it back from disk, or an older good one.

A ``CheckpointStore`` is the directory ``<run>/checkpoints``, or an address of an object store. A checkpoint is a
directory ``step-00000040`` with ``model.safetensors`` (an ordinary model file), ``optimizer.safetensors``,
``history.ndjson`` (the metrics of every epoch) and ``manifest.json`` (step, training, config, versions, size and
SHA-256 of each file). Read in this order: ``contents`` (what is saved, and its files), ``manifest`` (JSON with a hash
of itself), ``atomic`` (directories that are there completely or not at all), ``remote`` (the same in an object store),
``store``, ``background`` (writing while training continues). No pickle; files are hostile until read.
"""

from ringlet.checkpoint.background import BackgroundWriter
from ringlet.checkpoint.contents import Checkpoint, Entry
from ringlet.checkpoint.store import CheckpointStore

__all__ = ["BackgroundWriter", "Checkpoint", "CheckpointStore", "Entry"]

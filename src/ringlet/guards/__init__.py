"""What keeps a run honest: things that watch, and end it with a reason rather than let it hang or drift.

``agreement``: before the first step all ranks must have the same version, configuration and data; after every few
updates all replicas must hold the same bits. ``stall``: a rank that makes no progress is named, with the stacks of all
(``board``), and the job ends. ``faults``: the opposite, for tests: a rank fails where an environment variable says.

Takes a communicator and what the training loop tells; gives nothing but errors, which name rank, step and cause.
"""

from __future__ import annotations

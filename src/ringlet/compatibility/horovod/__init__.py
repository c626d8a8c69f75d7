"""The names of Horovod for programs that import it, over Ringlet; see ``ringlet run --horovod``.

Modules of Horovod are other names for modules of Ringlet: :mod:`horovod.aliases` has the table.
"""

from horovod import aliases
from ringlet.launch.horovod import run_like_horovod as run

aliases.install()

__version__ = "0.28.1"
"""The version whose names and semantics are kept."""

__all__ = ["__version__", "run"]

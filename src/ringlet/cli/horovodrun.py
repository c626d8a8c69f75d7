"""``horovodrun``: Horovod's command for its programs, over Ringlet."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ringlet.cli.main import main as command_line

HOROVOD_VERSION = "0.28.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """``horovodrun -np 4 python train.py``, its exit code: that of ``ringlet run --horovod -n 4 train.py``."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["--check-build"], ["-cb"]):
        return command_line(["doctor"])
    if words[:1] in (["--version"], ["-v"]):
        print(HOROVOD_VERSION)
        return 0
    return command_line(["run", "--horovod", *words])


if __name__ == "__main__":
    sys.exit(main())

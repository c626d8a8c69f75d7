"""A user's script that goes wrong on one rank while the others wait for it."""

from __future__ import annotations

import sys

import ringlet
from ringlet.errors import DataError


def main() -> None:
    ringlet.init()
    if ringlet.rank() == 1:
        if sys.argv[1] == "defect":
            raise KeyError("no such thing")
        if sys.argv[1] == "mistake":
            raise DataError("the file is not there")
        ringlet.communicator().abort(7)
    ringlet.barrier()
    sys.stdout.write("went on without rank 1\n")


if __name__ == "__main__":
    main()

"""``python -m ringlet.launch.guard PARENT PROGRAM ARGUMENTS…``: become a program that ends with its parent.

mpiexec does not notice when the process that started it is killed; started through this module it is killed as well,
and then ends its ranks.
"""

from __future__ import annotations

import os
import sys

from ringlet.launch.lifeline import die_with_parent


def main() -> None:
    """Never returns."""
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  the point of this module; no shell is involved


if __name__ == "__main__":
    main()

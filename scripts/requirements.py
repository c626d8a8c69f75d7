"""What Ringlet and some of its extras require, for ``pip install -r``: ``python scripts/requirements.py mpi keras``."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def main() -> None:
    """As the extras are named."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    unknown = [name for name in sys.argv[1:] if name not in extras]
    if unknown:
        raise SystemExit(f"unknown extras: {', '.join(unknown)}. There are {', '.join(extras)}")
    lines = [*project["dependencies"], *(line for name in sys.argv[1:] for line in extras[name])]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

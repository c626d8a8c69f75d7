"""What goes wrong with databases, and drivers that are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringlet.errors import RingletError, UsageError

_DRIVERS = {"duckdb": "DuckDB", "psycopg": "The PostgreSQL driver (psycopg)", "pyarrow": "Arrow (pyarrow)"}


class DatabaseError(RingletError):
    """A database that cannot be reached, or that refuses what was asked for."""


def driver(name: str) -> Any:
    """A module of one of the drivers; without it an error that says how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        title = _DRIVERS[name.partition(".")[0]]
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be used ({error})"
        raise UsageError(f'{title} {reason}. Install it with: pip install "ringlet[database]"') from error

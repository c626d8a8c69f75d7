"""Drivers, which may be missing; what goes wrong with databases; and what is closed at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from types import TracebackType
from typing import Any, Self

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


class Closing(ABC):
    """Something that must be closed."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; it cannot be used any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

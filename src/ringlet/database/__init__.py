"""Stage 11: scoring where the data lives. Takes models and the rows of a database; gives a prediction for every row.

``names`` and ``urls`` say what may be written where, ``models`` is a model as rows of a table, ``contract`` what every
database offers: ``duckdb`` (embedded) and ``postgresql`` (also Greenplum and Cloudberry: ``dialects``), of which a
``session`` runs no code of strangers (``ownership``). ``statements``, ``tables`` and ``functions`` hold the SQL.
``cache``, ``rows`` and ``files`` turn a row's picture into a row's result; ``inside`` is what a server's own process
imports. Nothing here imports a driver or a framework before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.database.contract import Database
    from ringlet.database.duckdb import register
    from ringlet.database.errors import DatabaseError
    from ringlet.database.names import Reference
    from ringlet.database.opening import connect

_HOMES = {
    "Database": "contract",
    "DatabaseError": "errors",
    "Reference": "names",
    "connect": "opening",
    "register": "duckdb",
}

__all__ = ["Database", "DatabaseError", "Reference", "connect", "register"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.database' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.database.{_HOMES[name]}"), name)

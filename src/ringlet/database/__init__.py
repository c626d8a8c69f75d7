"""Stage 11: scoring where the data lives. Takes models and the rows of a database; gives a prediction for every row.

``names`` says what may be written where, ``models`` is a model as rows of a table, ``contract`` what every database
offers: ``duckdb`` (embedded, with ``arrow_functions``) and ``postgresql`` (also Greenplum and Cloudberry), of which a
``session`` runs no code of strangers (``ownership``). ``statements`` and ``functions`` hold the SQL. ``rows`` turns a
row's picture into a row's result; ``inside`` is what a server's own process imports. Nothing here imports a driver
(``drivers``) or a framework before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlet.database.contract import Database, connect
    from ringlet.database.drivers import DatabaseError
    from ringlet.database.duckdb import register
    from ringlet.database.names import Reference

_HOMES = {
    "Database": "contract",
    "DatabaseError": "drivers",
    "Reference": "names",
    "connect": "contract",
    "register": "duckdb",
}

__all__ = ["Database", "DatabaseError", "Reference", "connect", "register"]


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ringlet.database' has no attribute '{name}'")
    return getattr(import_module(f"ringlet.database.{_HOMES[name]}"), name)

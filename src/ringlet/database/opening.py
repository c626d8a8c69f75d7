"""Opening a database by its address."""

from __future__ import annotations

from ringlet.database.contract import Access, Database
from ringlet.database.names import identifier
from ringlet.database.urls import DatabaseUrl

SCHEMA = "ringlet"


def connect(url: str, *, schema: str = SCHEMA, access: Access = "create") -> Database:
    """The database at ``duckdb:FILE`` or ``postgresql://…``.

    ``schema`` is where PostgreSQL keeps models and functions; a DuckDB file keeps its models in one table.
    """
    identifier("schema", schema)
    address = DatabaseUrl.parse(url)
    if address.kind == "duckdb":
        from ringlet.database.duckdb import DuckDb

        return DuckDb(address, access)
    from ringlet.database.postgresql import PostgreSql

    return PostgreSql(address, schema, access)

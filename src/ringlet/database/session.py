"""A session of PostgreSQL that runs our statements and no code of strangers: see :mod:`ringlet.database.ownership`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from ringlet.database.contract import Access
from ringlet.database.drivers import DatabaseError, driver
from ringlet.database.functions import PLPYTHON
from ringlet.database.names import DatabaseUrl, TableName, quoted
from ringlet.database.ownership import (
    BEGIN_SAFELY,
    SAFE_PATH,
    runs_when_read,
    strangers_at_table,
    strangers_in_schema,
    who_is_connected,
)
from ringlet.database.statements import PLACE, Dialect, Statement

MODELS = "models"
"""The table of stored models."""
_CONNECT_SECONDS = 10


@final
class Session:
    """A connection to a server, which is to use one schema there."""

    def __init__(self, address: DatabaseUrl, schema: str, access: Access) -> None:
        self._address, self._schema = address, schema
        self._psycopg = driver("psycopg")
        with self.explained():
            self.connection = self._psycopg.connect(
                address.location, autocommit=True, connect_timeout=_CONNECT_SECONDS, application_name="ringlet"
            )
        if access in ("read", "pretend"):
            self.query(Statement("set default_transaction_read_only = on"))
        with self._transaction():
            about = "select pg_catalog.version(), pg_catalog.current_setting('server_version_num')"
            [(version, number)] = self.query(Statement(about))
            [(self._is_superuser,)] = self.query(who_is_connected())
        self.dialect = Dialect.detect(version, int(number))

    @contextmanager
    def guarded(self, *, reading: bool = False) -> Iterator[bool]:
        """A transaction in which no code of a stranger's can run; tells whether the schema has a table of models.

        Strangers are looked for before anything is touched, and again when the table is locked, so that none can come
        in between. A table that appears later must not be touched. Plain tables of others may be read, but
        not by superusers: they have most to lose.
        """
        relaxed = reading and not self._is_superuser
        search = (runs_when_read if relaxed else strangers_in_schema)(self._schema, self.dialect)
        with self._transaction():
            self._refuse_strangers(search)
            has_models = self.exists(TableName(self._schema, MODELS))
            if has_models:
                self.query(Statement(f"lock table {quoted(self._schema)}.{MODELS} in access share mode"))
                self._refuse_strangers(search)
            yield has_models

    def refuse_unsafe_table(self, table: TableName) -> None:
        """Refuse to let a superuser add rows to a table if that could run code of a stranger's.

        To be called in a transaction; the table stays locked, so that no code comes later.
        """
        if not self._is_superuser:
            return
        self.query(Statement(f"lock table {table.quoted} in row exclusive mode"))
        found = f"select pg_catalog.current_setting('search_path'), {PLACE}::pg_catalog.regclass::pg_catalog.oid"
        [(path, number)] = self.query(Statement(found, (table.quoted,)))
        self.query(Statement(f"set local search_path = {SAFE_PATH}"))
        for what, owner in self.query(strangers_at_table(number, self.dialect)):
            raise DatabaseError(
                f"{self._address.shown}: {what} belongs to '{owner}', whose code could run with your rights: nothing "
                "was changed. Score as that role, or name another table with --into"
            )
        self.query(Statement(f"select pg_catalog.set_config('search_path', {PLACE}, true)", (path,)))

    def exists(self, table: TableName) -> bool:
        """Whether there is a table, or something else of its name."""
        return (
            self.query(Statement(f"select pg_catalog.to_regclass({PLACE}) is not null", (table.quoted,)))[0][0] is True
        )

    def query(self, statement: Statement) -> list[Any]:
        """All rows that a statement gives."""
        with self.explained():
            cursor = self.connection.execute(statement.bound("%s").encode(), statement.values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def run(self, statements: Sequence[Statement]) -> dict[str, list[Any]]:
        """The results of statements with a tag."""
        return {statement.tag: self.query(statement) for statement in statements}

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of the driver become a DatabaseError without secrets."""
        try:
            yield
        except self._psycopg.Error as error:
            details = error.diag.message_primary or str(error).strip()
            hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
            shown = f"{self._address.shown}: {self._address.hide(' '.join(details.split()))}{hint}"
            raise DatabaseError(shown) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, where names mean PostgreSQL's own."""
        with self.explained(), self.connection.transaction():
            self.run(BEGIN_SAFELY)
            yield

    def _refuse_strangers(self, search: Statement) -> None:
        for what, owner in self.query(search):
            raise DatabaseError(
                f"{self._address.shown}: {what} belongs to '{owner}', whose code could run with your rights: nothing "
                "was changed. Expected a schema where all is yours or a superuser's: give another --schema, or drop "
                f"what is not wanted in '{self._schema}'"
            )


def advised(error: DatabaseError, dialect: Dialect) -> DatabaseError:
    """The same error, with what to do about it if that is known."""
    psycopg: Any = driver("psycopg.errors")
    cause = error.__cause__
    if isinstance(cause, psycopg.InsufficientPrivilege):
        advice = (
            f"Functions in {PLPYTHON} can do whatever the server's account can, so only a superuser may make them. Ask "
            "one to run this, or what --dry-run prints. To store the model alone takes the right to create a schema: "
            "--no-functions"
        )
    elif isinstance(cause, psycopg.UndefinedFile | psycopg.FeatureNotSupported):
        package = f"postgresql-plpython3-{dialect.major}"
        advice = f"The server lacks {PLPYTHON}: install it there (Debian, Ubuntu: {package}), or give --no-functions"
    elif isinstance(cause, psycopg.ExternalRoutineException | psycopg.ExternalRoutineInvocationException):
        advice = (
            "The server's Python must be able to import Ringlet and what runs the model: install "
            '"ringlet[openvino]" for it (Python 3.11 or newer), or say where that is with --python-path DIR'
        )
    else:
        return error
    return DatabaseError(f"{error}. {advice}")

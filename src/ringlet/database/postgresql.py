"""PostgreSQL, and with it Greenplum and Cloudberry: models in a table, functions in the server's own Python.

Scoring from here, for servers where nobody may install functions, needs no more than the right to read the rows and
to make a table: rows come through a cursor, results go back by COPY, all in one transaction.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from ringlet.database.advice import advised
from ringlet.database.closing import Closing
from ringlet.database.contract import Access, Installation, Installed, Progress, Scored, Scoring
from ringlet.database.dialects import Dialect
from ringlet.database.errors import DatabaseError, driver
from ringlet.database.files import AllowedDirectory
from ringlet.database.functions import (
    FunctionSettings,
    check_functions,
    create_functions,
    find_strangers,
    grant_functions,
)
from ringlet.database.models import Entry, open_predictor, stored_artifact
from ringlet.database.names import Reference, TableName, quoted
from ringlet.database.rows import COLUMNS, bytes_item, file_item, predict_rows
from ringlet.database.statements import PLACE, Statement, script
from ringlet.database.tables import (
    ENTRY_COLUMNS,
    KEY,
    PICTURE,
    Shape,
    bare,
    check_directory,
    create_models,
    delete_models,
    insert_model,
    result_columns,
    select_models,
)
from ringlet.database.urls import DatabaseUrl
from ringlet.errors import UnknownNameError, UsageError
from ringlet.inference.artifact import Artifact

_BLOB = r"'\x{}'::bytea"
_KINDS = {17: "blob", 25: "text", 1042: "text", 1043: "text"}
"""By the numbers of types."""
_CURSOR = "ringlet_rows"
_CONNECT_SECONDS = 10


@final
class PostgreSql(Closing):
    """A connection to a server."""

    def __init__(self, address: DatabaseUrl, schema: str, access: Access = "create") -> None:
        self.shown, self._address, self._schema = address.shown, address, schema
        self._psycopg = driver("psycopg")
        self._models = f"{quoted(schema)}.models"
        with self._explained():
            self.connection = self._psycopg.connect(
                address.location, autocommit=True, connect_timeout=_CONNECT_SECONDS, application_name="ringlet"
            )
        if access in ("read", "pretend"):
            self._query(Statement("set default_transaction_read_only = on"))
        [(version, number)] = self._query(Statement("select version(), current_setting('server_version_num')"))
        self.dialect = Dialect.detect(version, int(number))

    def close(self) -> None:
        """Leave the server."""
        self.connection.close()

    def plan_install(self, wanted: Installation) -> list[Statement]:
        """Only what is missing: each of these statements needs a right."""
        plan: list[Statement] = []
        if not self._query(Statement(f"select 1 from pg_namespace where nspname = {PLACE}", (self._schema,))):
            plan.append(Statement(f"create schema {quoted(self._schema)}"))
        if not self._has_models():
            plan += self._create_models()
        settings = wanted.functions
        if settings is None and wanted.with_functions and not self._has_functions():
            settings = FunctionSettings()
        if settings is not None:
            plan += self._create_functions(settings)
        if wanted.with_functions:
            plan.append(check_functions(self._schema, wanted.model.artifact.kind))
        plan += grant_functions(self._schema, wanted.roles)
        if self._newest(wanted.model.name, wanted.model.sha256) is None:
            plan.append(Statement(f"lock table {self._models} in share row exclusive mode"))
            plan.append(insert_model(self._models, wanted.model))
        return plan

    def install(self, wanted: Installation) -> Installed:
        """Store the model and make the functions, in one transaction."""
        try:
            same = self._newest(wanted.model.name, wanted.model.sha256)
            found = self._run(self.plan_install(wanted))
        except DatabaseError as error:
            raise advised(error, self.dialect) from error.__cause__
        about = json.loads(found["about"][0][0]) if "about" in found else {}
        version = same if same is not None else found["version"][0][0]
        return Installed(Reference(wanted.model.name, version), same is None, about)

    def models(self) -> list[Entry]:
        """All stored models."""
        if not self._has_models():
            return []
        rows = self._query(select_models(self._models, ENTRY_COLUMNS))
        return [Entry.read(row) for row in rows]

    def load(self, reference: Reference) -> Artifact:
        """A stored model, verified."""
        found = []
        if self._has_models():
            found = self._query(select_models(self._models, "sha256, kind, network, weights", reference))
        if not found:
            raise UnknownNameError("model", str(reference), {entry.name for entry in self.models()})
        return stored_artifact(f"model '{reference}'", *found[0])

    def plan_remove(self, reference: Reference) -> list[Statement]:
        """One deletion."""
        return [delete_models(self._models, reference)]

    def remove(self, reference: Reference) -> list[Reference]:
        """Remove a version, or all of a name."""
        removed = self._run(self.plan_remove(reference))["versions"] if self._has_models() else []
        if not removed:
            raise UnknownNameError("model", str(reference), {entry.name for entry in self.models()})
        return [Reference(reference.name, version) for (version,) in sorted(removed)]

    def plan_score(self, wanted: Scoring) -> list[Statement]:
        """The table, a cursor, and what is repeated until the cursor is at its end."""
        shape = self._shape(wanted)
        return [*self._prepare(wanted, shape), *self._repeat(wanted, shape)]

    def score(self, wanted: Scoring, progress: Progress = lambda *_: None) -> Scored:
        """Predict every row in this process."""
        shape = self._shape(wanted)
        [(total,)] = self._query(Statement(f"select count(*) from ({bare(wanted.query)}\n) as ringlet_query"))
        fetch, copy = self._repeat(wanted, shape)
        num_rows = num_errors = num_nulls = 0
        artifact = wanted.artifact.loaded()
        with (
            open_predictor(artifact, threads=wanted.threads, batch_size=wanted.batch_size) as predictor,
            self._explained(),
            self.connection.transaction(),
        ):
            cursor = self.connection.cursor()
            for statement in self._prepare(wanted, shape):
                cursor.execute(statement.text.encode())
            while chunk := cursor.execute(fetch.text.encode(), binary=True).fetchall():
                rows = predict_rows(predictor, [_item(picture, wanted, shape) for _, picture in chunk])
                with cursor.copy(copy.text.encode()) as stream:
                    for (key, _), row in zip(chunk, rows, strict=True):
                        stream.write_row((key, *((row or {}).get(name) for name in COLUMNS)))
                num_rows += len(rows)
                num_nulls += sum(row is None for row in rows)
                num_errors += sum(row is not None and row["error"] is not None for row in rows)
                progress(num_rows, total)
        return Scored(num_rows, num_errors, num_nulls)

    def script(self, statements: Sequence[Statement], *, shorten: bool = False) -> str:
        """Statements as text for psql; a COPY is followed by no rows."""
        text = script(statements, blob=_BLOB, shorten=shorten)
        return text.replace(" from stdin;\n", " from stdin;\n\\.\n")

    def _create_models(self) -> list[Statement]:
        created, check = "timestamp with time zone not null default now()", "name ~ '^({})$'"
        columns = "alter column network set storage external, alter column weights set storage external"
        return [
            create_models(self._models, blob="bytea", created=created, check=check, dialect=self.dialect),
            Statement(f"alter table {self._models} {columns}"),
        ]

    def _create_functions(self, settings: FunctionSettings) -> list[Statement]:
        for what, owner in self._query(find_strangers(self._schema)):
            raise DatabaseError(
                f"{self.shown}: {what} in schema '{self._schema}' belongs to '{owner}', who could exchange functions "
                "that run with your rights. Give another --schema, or take it over: alter … owner to current_user"
            )
        language = settings.language
        known = self._query(Statement(f"select 1 from pg_language where lanname = {PLACE}", (language,)))
        extension = [] if known else [Statement(f"create extension if not exists {language}")]
        return [*extension, *create_functions(self._schema, settings, self.dialect)]

    def _has_models(self) -> bool:
        return self._exists(TableName(self._schema, "models"))

    def _has_functions(self) -> bool:
        text = (
            "select 1 from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
            f"where n.nspname = {PLACE} and p.proname = 'ringlet_predict'"
        )
        return bool(self._query(Statement(text, (self._schema,))))

    def _newest(self, name: str, sha256: str) -> int | None:
        """The newest version of a name, if it has these bytes."""
        if not self._has_models():
            return None
        found = self._query(select_models(self._models, "version, sha256", Reference(name)))
        return found[0][0] if found and found[0][1] == sha256 else None

    def _exists(self, table: TableName) -> bool:
        return self._query(Statement(f"select to_regclass({PLACE}) is not null", (table.quoted,)))[0][0] is True

    def _shape(self, wanted: Scoring) -> Shape:
        query = bare(wanted.query)
        with self._explained():
            text = f"select * from ({query}\n) as ringlet_query limit 0"
            described = self.connection.execute(text.encode()).description or []
        shape = Shape.of(query, [(column.name, self._kind(column.type_code)) for column in described])
        check_directory(shape, wanted.allow_directory)
        return shape

    def _kind(self, number: int) -> str:
        known = self._psycopg.adapters.types.get(number)
        return _KINDS.get(number, known.name if known is not None else f"of type {number}")

    def _prepare(self, wanted: Scoring, shape: Shape) -> list[Statement]:
        """The table of results, and the cursor."""
        table, exists = wanted.into.quoted, self._exists(wanted.into)
        if exists and not (wanted.append or wanted.replace):
            raise UsageError(f"table {table} exists already: add --append or --replace")
        plan: list[Statement] = []
        if exists and wanted.replace:
            plan.append(Statement(f"drop table {table}"))
        if not exists or wanted.replace:
            empty = ", ".join(f"null::{kind}" for kind in result_columns("bytea").values())
            key = quoted(shape.names[0])
            plan.append(
                Statement(
                    f"create table {table} ({shape.columns}) as\n"
                    f"select {KEY}, {empty} from {shape.rows} limit 0{self.dialect.distributed_by(key)}"
                )
            )
        rows = f"select {KEY}::text, {PICTURE} from {shape.rows}"
        return [*plan, Statement(f"declare {_CURSOR} no scroll cursor for\n{rows}")]

    def _repeat(self, wanted: Scoring, shape: Shape) -> tuple[Statement, Statement]:
        """What is done for every so many rows: fetch, (predict,) copy."""
        count = 4 * wanted.batch_size * wanted.threads
        fetch = Statement(
            f"fetch forward {count} from {_CURSOR}", remark="again and again until there are no more rows:"
        )
        remark = f"their predictions by {wanted.model}, computed by the client:".replace("\n", " ")
        return fetch, Statement(f"copy {wanted.into.quoted} ({shape.columns}) from stdin", remark=remark)

    def _query(self, statement: Statement) -> list[Any]:
        with self._explained():
            cursor = self.connection.execute(statement.bound("%s").encode(), statement.values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def _run(self, statements: Sequence[Statement]) -> dict[str, list[Any]]:
        """All or nothing; the results of statements with a tag."""
        with self._explained(), self.connection.transaction():
            return {statement.tag: self._query(statement) for statement in statements}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            details = error.diag.message_primary or str(error).strip()
            hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
            raise DatabaseError(f"{self.shown}: {self._address.hide(' '.join(details.split()))}{hint}") from error


def _item(picture: Any, wanted: Scoring, shape: Shape) -> Any:
    if not shape.is_path:
        return bytes_item(picture)
    assert wanted.allow_directory is not None
    return file_item(picture, AllowedDirectory(wanted.allow_directory))

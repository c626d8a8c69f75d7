"""PostgreSQL, and with it Greenplum and Cloudberry: models in a table, functions in the server's own Python.

Scoring from here, for servers where no one may install functions, needs no more than the right to read the rows and
to make a table: rows come through a cursor, results go back by COPY, all in one transaction.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, final

from ringlet.database.contract import Access, DatabaseKind, Installation, Installed, Progress, Scored, Scoring
from ringlet.database.drivers import Closing, DatabaseError
from ringlet.database.functions import (
    PLPYTHON,
    FunctionSettings,
    check_functions,
    create_functions,
    grant_functions,
)
from ringlet.database.models import Entry, open_predictor, stored_artifact
from ringlet.database.names import DatabaseUrl, Reference, quoted
from ringlet.database.ownership import BEGIN_SAFELY, stop_at_strangers, strangers_in_schema
from ringlet.database.rows import COLUMNS, AllowedDirectory, bytes_item, file_item, predict_rows
from ringlet.database.session import MODELS, Session, advised
from ringlet.database.statements import (
    ENTRY_COLUMNS,
    KEY,
    PICTURE,
    PLACE,
    Shape,
    Statement,
    bare,
    check_directory,
    create_models,
    delete_models,
    insert_model,
    result_columns,
    script,
    select_models,
)
from ringlet.errors import UnknownNameError, UsageError
from ringlet.inference.artifact import Artifact

_BLOB = r"'\x{}'::bytea"
_KINDS = {17: "blob", 25: "text", 1042: "text", 1043: "text"}
"""By the numbers of types."""
_OWN_TYPES = {name: f"pg_catalog.{name}" for name in ("text", "bytea")}
"""Types that are names and not words of SQL, where names are looked up as the user wishes."""
_CURSOR = "ringlet_rows"


@final
class PostgreSql(Closing):
    """A connection to a server."""

    def __init__(self, address: DatabaseUrl, schema: str, access: Access = "create") -> None:
        self.shown, self._schema = address.shown, schema
        self._models = f"{quoted(schema)}.{MODELS}"
        self._session = Session(address, schema, access)
        self.connection, self.dialect = self._session.connection, self._session.dialect

    def close(self) -> None:
        """Leave the server."""
        self.connection.close()

    def plan_install(self, wanted: Installation) -> list[Statement]:
        """Only what is missing: each of these statements needs a right."""
        with self._session.guarded() as has_models:
            return self._plan_install(wanted, has_models, self._newest(wanted, has_models))

    def install(self, wanted: Installation) -> Installed:
        """Store the model and make the functions, in one transaction."""
        try:
            with self._session.guarded() as has_models:
                same = self._newest(wanted, has_models)
                found = self._session.run(self._plan_install(wanted, has_models, same))
        except DatabaseError as error:
            raise advised(error, self.dialect) from error.__cause__
        about = json.loads(found["about"][0][0]) if "about" in found else {}
        version = same if same is not None else found["version"][0][0]
        return Installed(Reference(wanted.model.name, version), same is None, about)

    def models(self) -> list[Entry]:
        """All stored models."""
        with self._session.guarded(reading=True) as has_models:
            return self._entries(has_models)

    def load(self, reference: Reference) -> Artifact:
        """A stored model, verified."""
        with self._session.guarded(reading=True) as has_models:
            search = select_models(self._models, "sha256, kind, network, weights", reference)
            found = self._session.query(search) if has_models else []
            if not found:
                raise UnknownNameError("model", str(reference), {entry.name for entry in self._entries(has_models)})
        return stored_artifact(f"model '{reference}'", *found[0])

    def plan_remove(self, reference: Reference) -> list[Statement]:
        """One deletion."""
        with self._session.guarded():
            return self._plan_remove(reference)

    def remove(self, reference: Reference) -> list[Reference]:
        """Remove a version, or all of a name."""
        with self._session.guarded() as has_models:
            removed = self._session.run(self._plan_remove(reference))["versions"] if has_models else []
            if not removed:
                raise UnknownNameError("model", str(reference), {entry.name for entry in self._entries(has_models)})
        return [Reference(reference.name, version) for (version,) in sorted(removed)]

    def plan_score(self, wanted: Scoring) -> list[Statement]:
        """The table, a cursor, and what is repeated until the cursor is at its end."""
        shape = self._shape(wanted)
        with self._session.explained(), self.connection.transaction():
            return [*self._prepare(wanted, shape), *self._repeat(wanted, shape)]

    def score(self, wanted: Scoring, progress: Progress = lambda *_: None) -> Scored:
        """Predict every row in this process."""
        shape = self._shape(wanted)
        [(total,)] = self._session.query(
            Statement(f"select pg_catalog.count(*) from ({bare(wanted.query)}\n) as ringlet_query")
        )
        fetch, copy = self._repeat(wanted, shape)
        num_rows = num_errors = num_nulls = 0
        artifact = wanted.artifact.loaded()
        with (
            open_predictor(artifact, threads=wanted.threads, batch_size=wanted.batch_size) as predictor,
            self._session.explained(),
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

    def _plan_install(self, wanted: Installation, has_models: bool, same: int | None) -> list[Statement]:
        """Strangers are looked for twice: before anything is touched, and when all that will be used is there."""
        guard = stop_at_strangers(strangers_in_schema(self._schema, self.dialect))
        plan = [*BEGIN_SAFELY, guard]
        known = f"select 1 from pg_catalog.pg_namespace where nspname = {PLACE}"
        if not self._session.query(Statement(known, (self._schema,))):
            plan.append(Statement(f"create schema {quoted(self._schema)}"))
        if not has_models:
            plan += self._create_models()
        settings = wanted.functions
        if settings is None and wanted.with_functions and not self._has_functions():
            settings = FunctionSettings()
        if settings is not None:
            plan += self._create_functions(settings)
        if same is None:
            plan.append(Statement(f"lock table {self._models} in share row exclusive mode"))
        plan.append(guard)
        if wanted.with_functions:
            plan.append(check_functions(self._schema, wanted.model.artifact.kind))
        plan += grant_functions(self._schema, wanted.roles)
        return [*plan, insert_model(self._models, wanted.model)] if same is None else plan

    def _plan_remove(self, reference: Reference) -> list[Statement]:
        guard = stop_at_strangers(strangers_in_schema(self._schema, self.dialect))
        lock = Statement(f"lock table {self._models} in row exclusive mode")
        return [*BEGIN_SAFELY, guard, lock, guard, delete_models(self._models, reference)]

    def _create_functions(self, settings: FunctionSettings) -> list[Statement]:
        language = settings.language
        known = f"select 1 from pg_catalog.pg_language where lanname = {PLACE}"
        functions = create_functions(self._schema, settings, self.dialect)
        if self._session.query(Statement(known, (language,))):
            return functions
        extension = Statement(f"create extension if not exists {language}")
        if language == PLPYTHON:  # it says itself in which schema it wants to be
            return [extension, *functions]
        usual = Statement("set local search_path to default", remark="the extension goes where extensions usually go:")
        return [usual, extension, *BEGIN_SAFELY[1:], *functions]

    def _entries(self, has_models: bool) -> list[Entry]:
        rows = self._session.query(select_models(self._models, ENTRY_COLUMNS)) if has_models else []
        return [Entry.read(row) for row in rows]

    def _has_functions(self) -> bool:
        text = (
            "select 1 from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace "
            f"where n.nspname = {PLACE} and p.proname = 'ringlet_predict'"
        )
        return bool(self._session.query(Statement(text, (self._schema,))))

    def _newest(self, wanted: Installation, has_models: bool) -> int | None:
        """The newest version of a name, if it has these bytes."""
        search = select_models(self._models, "version, sha256", Reference(wanted.model.name))
        found = self._session.query(search) if has_models else []
        return found[0][0] if found and found[0][1] == wanted.model.sha256 else None

    def _shape(self, wanted: Scoring) -> Shape:
        query = bare(wanted.query)
        with self._session.explained():
            text = f"select * from ({query}\n) as ringlet_query limit 0"
            described = self.connection.execute(text.encode()).description or []
        shape = Shape.of(query, [(column.name, self._kind(column.type_code)) for column in described])
        check_directory(shape, wanted.allow_directory)
        return shape

    def _kind(self, number: int) -> str:
        known = self.connection.adapters.types.get(number)
        return _KINDS.get(number, known.name if known is not None else f"of type {number}")

    def _prepare(self, wanted: Scoring, shape: Shape) -> list[Statement]:
        """The table of results, and the cursor."""
        table, exists = wanted.into.quoted, self._session.exists(wanted.into)
        if exists and not (wanted.append or wanted.replace):
            raise UsageError(f"table {table} exists already: add --append or --replace")
        if exists and not wanted.replace:
            self._session.refuse_unsafe_table(wanted.into)
        plan: list[Statement] = []
        if exists and wanted.replace:
            plan.append(Statement(f"drop table {table}"))
        if not exists or wanted.replace:
            empty = ", ".join(f"null::{_OWN_TYPES.get(kind, kind)}" for kind in result_columns("bytea").values())
            key = quoted(shape.names[0])
            plan.append(
                Statement(
                    f"create table {table} ({shape.columns}) as\n"
                    f"select {KEY}, {empty} from {shape.rows} limit 0{self.dialect.distributed_by(key)}"
                )
            )
        rows = f"select {KEY}::{_OWN_TYPES['text']}, {PICTURE} from {shape.rows}"
        return [*plan, Statement(f"declare {_CURSOR} no scroll cursor for\n{rows}")]

    def _repeat(self, wanted: Scoring, shape: Shape) -> tuple[Statement, Statement]:
        """What is done for every so many rows: fetch, (predict,) copy."""
        count = 4 * wanted.batch_size * wanted.threads
        fetch = Statement(
            f"fetch forward {count} from {_CURSOR}", remark="again and again until there are no more rows:"
        )
        remark = f"their predictions by {wanted.model}, computed by the client:".replace("\n", " ")
        return fetch, Statement(f"copy {wanted.into.quoted} ({shape.columns}) from stdin", remark=remark)


def _item(picture: Any, wanted: Scoring, shape: Shape) -> Any:
    if not shape.is_path:
        return bytes_item(picture)
    assert wanted.allow_directory is not None
    return file_item(picture, AllowedDirectory(wanted.allow_directory))


@final
class PostgreSqlServer(DatabaseKind):
    """PostgreSQL, Greenplum, Cloudberry: ``postgresql://…``."""

    name: ClassVar[str] = "postgresql"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"postgres": {}}

    def open(self, url: str, schema: str, access: Access) -> PostgreSql:
        """The database at an address."""
        return PostgreSql(DatabaseUrl.parse(url), schema, access)

"""DuckDB: models in a table of the file, functions on the connection."""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, final

from ringlet import signals
from ringlet.database.arrow_functions import MODELS, PREDICT, PREDICT_FILE, ArrowFunctions
from ringlet.database.contract import Access, DatabaseKind, Installation, Installed, Progress, Scored, Scoring
from ringlet.database.drivers import Closing, DatabaseError, driver
from ringlet.database.models import Entry, read_artifact, stored_artifact
from ringlet.database.names import DatabaseUrl, Reference, TableName
from ringlet.database.rows import Row
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
from ringlet.inference.predictor import BATCH_SIZE
from ringlet.launch.resources import usable_cores

_BLOB = "from_hex('{}')"
_KINDS = {"BLOB": "blob", "VARCHAR": "text"}


def register(
    connection: Any,
    *,
    threads: int | None = None,
    batch_size: int = BATCH_SIZE,
    allow_directory: Path | str | None = None,
    models: Mapping[str, Path | str] | None = None,
) -> ArrowFunctions:
    """Give a DuckDB connection ``ringlet_predict(model, image)`` and ``ringlet_predict_file(model, path)``.

    Models are those that ``ringlet sql install`` has stored in the database, and ``models``, which lie in files. Files
    of rows are read below ``allow_directory`` only. What is returned is a context, to be left or closed before the
    connection.
    """
    directory = None if allow_directory is None else str(Path(allow_directory).absolute())
    return ArrowFunctions(
        connection,
        threads=usable_cores() if threads is None else threads,
        batch_size=batch_size,
        allow_directory=directory,
        models={name: read_artifact(path) for name, path in (models or {}).items()},
    )


@final
class DuckDb(Closing):
    """A DuckDB file."""

    def __init__(self, address: DatabaseUrl, access: Access = "create") -> None:
        self.shown = address.shown
        self._duckdb = driver("duckdb")
        self._file = Path(address.location)
        exists = self._file.is_file()
        self._is_new = not exists and access == "create"
        if not exists and access in ("read", "change"):
            raise DatabaseError(
                f"{self.shown}: no such file. Expected a DuckDB database: check the name, or make one with "
                "`ringlet sql install`"
            )
        with self._explained():
            if not exists and access == "pretend":
                self.connection = self._duckdb.connect(":memory:")
            else:
                read_only = access in ("read", "pretend")
                self.connection = self._duckdb.connect(address.location, read_only=read_only)

    def close(self) -> None:
        """Leave the file; one that was made here and in which nothing was stored goes away again."""
        if self._is_new and self._is_empty():
            self._file.unlink(missing_ok=True)  # while it is ours: no one else can have opened it
        self.connection.close()

    def plan_install(self, wanted: Installation) -> list[Statement]:
        """The table if it is missing, and the model."""
        if wanted.functions is not None or wanted.roles:
            raise UsageError("DuckDB has no languages, containers or roles: leave the options of functions out")
        table = create_models(MODELS, blob="blob", created="timestamp not null", check="regexp_full_match(name, '{}')")
        created = datetime.now(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
        return [table, insert_model(MODELS, wanted.model, created=created)]

    def install(self, wanted: Installation) -> Installed:
        """Store the model, unless the newest version is the same."""
        name, plan = wanted.model.name, self.plan_install(wanted)
        newest = [entry for entry in self.models() if entry.name == name][-1:]
        if newest and newest[0].sha256 == wanted.model.sha256:
            return Installed(newest[0].reference, is_new=False)
        return Installed(Reference(name, self._run(plan)["version"][0][0]))

    def models(self) -> list[Entry]:
        """All stored models."""
        if not self._exists(TableName(None, MODELS)):
            return []
        rows = self._query(select_models(MODELS, ENTRY_COLUMNS))
        return [Entry.read(row) for row in rows]

    def load(self, reference: Reference) -> Artifact:
        """A stored model, verified."""
        found = []
        if self._exists(TableName(None, MODELS)):
            found = self._query(select_models(MODELS, "sha256, kind, network, weights", reference))
        if not found:
            raise UnknownNameError("model", str(reference), {str(entry.name) for entry in self.models()})
        return stored_artifact(f"model '{reference}'", *found[0])

    def plan_remove(self, reference: Reference) -> list[Statement]:
        """One deletion."""
        return [delete_models(MODELS, reference)]

    def remove(self, reference: Reference) -> list[Reference]:
        """Remove a version, or all of a name."""
        removed = []
        if self._exists(TableName(None, MODELS)):
            removed = self._run(self.plan_remove(reference))["versions"]
        if not removed:
            raise UnknownNameError("model", str(reference), {entry.name for entry in self.models()})
        return [Reference(reference.name, version) for (version,) in sorted(removed)]

    def plan_score(self, wanted: Scoring) -> list[Statement]:
        """One statement: DuckDB calls the function for every row, on all threads."""
        shape = self._shape(wanted)
        exists = self._exists(wanted.into)
        if exists and not (wanted.append or wanted.replace):
            raise UsageError(f"table {wanted.into.quoted} exists already: add --append or --replace")
        function = PREDICT_FILE if shape.is_path else PREDICT
        columns = ", ".join(f'p."{name}"' for name in result_columns("blob"))
        rows = (
            f"select {KEY}, {columns} from (\n  select {KEY}, {function}({PLACE}, {PICTURE}) as p from {shape.rows}\n)"
        )
        names = f"{wanted.into.quoted} ({shape.columns})"
        if exists and wanted.append:
            return [Statement(f"insert into {names}\n{rows}", (wanted.model,))]
        replace = "or replace " if wanted.replace else ""
        return [Statement(f"create {replace}table {names} as\n{rows}", (wanted.model,))]

    def score(self, wanted: Scoring, progress: Progress = lambda *_: None) -> Scored:
        """Predict every row."""
        plan = self.plan_score(wanted)
        [(total,)] = self._query(Statement(f"select count(*) from ({bare(wanted.query)}\n)"))
        done = 0

        def count(rows: list[Row | None]) -> None:
            nonlocal done
            done = min(total, done + len(rows))  # the planner tries functions of constants beforehand
            progress(done, total)

        before = self._count(wanted.into) if wanted.append and self._exists(wanted.into) else (0, 0, 0)
        with ArrowFunctions(
            self.connection,
            threads=wanted.threads,
            batch_size=wanted.batch_size,
            allow_directory=wanted.allow_directory,
            models={wanted.model: wanted.artifact.loaded()},
            on_rows=count,
        ):
            self._query(Statement(f"set threads = {wanted.threads}"))
            self._run(plan)
        after = self._count(wanted.into)
        return Scored(*(new - old for new, old in zip(after, before, strict=True)))

    def script(self, statements: Sequence[Statement], *, shorten: bool = False) -> str:
        """Statements as text."""
        return script(statements, blob=_BLOB, shorten=shorten)

    def _is_empty(self) -> bool:
        kinds = ("tables", "views", "types", "functions", "schemas")
        parts = (f" union all select 1 from duckdb_{kind}() where not internal" for kind in kinds)
        try:
            return not self._query(Statement(f"select 1 from duckdb_sequences(){''.join(parts)}"))
        except DatabaseError:  # closed already, or broken: whatever it holds stays
            return False

    def _count(self, table: TableName) -> tuple[int, int, int]:
        """Rows, errors and null pictures of a table of results."""
        nulls = "count(*) filter (where error is null and class is null and mask is null)"
        [(rows, errors, empty)] = self._query(Statement(f"select count(*), count(error), {nulls} from {table.quoted}"))
        return rows, errors, empty

    def _shape(self, wanted: Scoring) -> Shape:
        query = bare(wanted.query)
        described = self._query(Statement(f"describe select * from ({query}\n)"))
        shape = Shape.of(query, [(name, _KINDS.get(kind, kind.lower())) for name, kind, *_ in described])
        check_directory(shape, wanted.allow_directory)
        return shape

    def _exists(self, table: TableName) -> bool:
        text = f"select 1 from information_schema.tables where lower(table_name) = lower({PLACE})"
        if table.schema is None:
            return bool(self._query(Statement(text, (table.table,))))
        within = f"{text} and lower(table_schema) = lower({PLACE})"
        return bool(self._query(Statement(within, (table.table, table.schema))))

    def _query(self, statement: Statement) -> list[Any]:
        with self._explained():
            return list(self.connection.execute(statement.bound("?"), list(statement.values)).fetchall())

    def _run(self, statements: Sequence[Statement]) -> dict[str, list[Any]]:
        """All or nothing; the results of statements with a tag."""
        self._query(Statement("begin"))
        try:
            with self._interruptible():
                found = {statement.tag: self._query(statement) for statement in statements}
        except BaseException:
            self._query(Statement("rollback"))
            raise
        self._query(Statement("commit"))
        return found

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Within: a signal ends the query that is running. An exception of its handler may be lost within DuckDB."""
        asked: list[signal.Signals] = []

        def interrupt(number: signal.Signals, _insists: bool) -> None:
            asked.append(number)
            self.connection.interrupt()

        try:
            with signals.handled(interrupt):
                yield
        except (DatabaseError, RuntimeError):
            if asked:
                raise signals.Stopped(asked[0]) from None
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._duckdb.Error as error:
            raise DatabaseError(f"{self.shown}: {str(error).strip()}") from error


@final
class DuckDbFile(DatabaseKind):
    """DuckDB: ``duckdb:FILE``; its models are in one table."""

    name: ClassVar[str] = "duckdb"

    def open(self, url: str, schema: str, access: Access) -> DuckDb:
        """The database at an address."""
        del schema
        return DuckDb(DatabaseUrl.parse(url), access)

"""SQL with bound values, to be run or to be printed: tables of stored models and of results.

The allowlist of names is checked by the table of models too, whatever writes to it. Bytes are stored uncompressed where
that can be said: weights do not compress, and loading is faster.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringlet.database.drivers import DatabaseError
from ringlet.database.models import KINDS, NewModel
from ringlet.database.names import MODEL_NAME, Reference, quoted
from ringlet.errors import UsageError

Value = str | int | bytes | None
PLACE = "\0"
"""Where a value is bound: a character that no SQL can hold."""
_SHORT = 32


@dataclass(frozen=True)
class Statement:
    """One statement; ``values`` are bound to its places. What carries a ``tag`` has a result that is wanted."""

    text: str
    values: tuple[Value, ...] = ()
    tag: str = ""
    remark: str = ""
    """What a reader of the script should know."""

    def bound(self, mark: str) -> str:
        """The text for a driver that marks the places of values so."""
        text = self.text.replace("%", "%%") if mark.startswith("%") and self.values else self.text
        return text.replace(PLACE, mark)

    def script(self, *, blob: str, shorten: bool = False) -> str:
        """The statement with its values written out. ``blob`` says how bytes are written, with ``{}`` for hexadecimals.

        With ``shorten`` long bytes are cut, for reading only.
        """
        first, *rest = self.text.split(PLACE) if self.values else [self.text]
        parts = [first]
        for value, text in zip(self.values, rest, strict=True):
            parts += [_literal(value, blob, shorten), text]
        head = f"-- {self.remark}\n" if self.remark else ""
        return f"{head}{''.join(parts)};"


def script(statements: Iterable[Statement], *, blob: str, shorten: bool = False) -> str:
    """All statements, in one transaction."""
    inner = (statement.script(blob=blob, shorten=shorten) for statement in statements)
    return "\n".join(("begin;", *inner, "commit;")) + "\n"


def _literal(value: Value, blob: str, shorten: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        if shorten and len(value) > _SHORT:
            return blob.format(f"{value[:_SHORT].hex()}… {len(value):,} bytes")
        return blob.format(value.hex())
    return "'" + value.replace("'", "''") + "'"


# -- PostgreSQL and its relatives -------------------------------------------------------------------------------------
_RELATIVES = re.compile(r"\((?:Apache )?(Greenplum|Cloudberry)(?: Database)? (\d+)[^ )]*")
_FIRST_PARALLEL = 90600
_FIRST_REPLICATED = 6


@dataclass(frozen=True)
class Dialect:
    """A server by its name, its own major version, and the version of PostgreSQL that it is made of."""

    name: str
    major: int
    postgresql: int
    """As ``server_version_num``: 150018."""

    @classmethod
    def detect(cls, version: str, server_version_num: int) -> Dialect:
        """From what ``version()`` says."""
        match = _RELATIVES.search(version)
        if match is None:
            return cls("PostgreSQL", server_version_num // 10000, server_version_num)
        name, major = match[1], int(match[2])
        if name == "Greenplum" and major < _FIRST_REPLICATED:
            raise DatabaseError(
                f"Greenplum {major} has no replicated tables: expected version {_FIRST_REPLICATED} or newer"
            )
        return cls(name, major, server_version_num)

    @property
    def distributed(self) -> bool:
        """Whether rows lie on several segments."""
        return self.name != "PostgreSQL"

    @property
    def parallel(self) -> str:
        """The mark of functions that parallel workers may call."""
        return " parallel safe" if self.postgresql >= _FIRST_PARALLEL else ""

    @property
    def replicated(self) -> str:
        """The mark of a table of which every segment has all rows."""
        return " distributed replicated" if self.distributed else ""

    def distributed_by(self, column: str) -> str:
        """The mark of a table whose rows go to segments by a (quoted) column."""
        return f" distributed by ({column})" if self.distributed else ""


# -- tables -----------------------------------------------------------------------------------------------------------
ENTRY_COLUMNS = (
    "name, version, sha256, kind, description, created, octet_length(network) + coalesce(octet_length(weights), 0)"
)
KEY, PICTURE = quoted("ringlet_key"), quoted("ringlet_picture")
"""What the two columns of a query are called inside our statements."""
_TYPES = {
    "class": "integer",
    "label": "text",
    "probability": "double precision",
    "mask": "{blob}",
    "share": "double precision",
    "error": "text",
}
"""The columns of a result, in their order; numbers have eight bytes, as those of ``ringlet predict``."""


def result_columns(blob: str) -> dict[str, str]:
    """Column and type; ``blob`` is what the database calls bytes."""
    return {name: kind.format(blob=blob) for name, kind in _TYPES.items()}


def create_models(table: str, *, blob: str, created: str, check: str, dialect: Dialect | None = None) -> Statement:
    """The table of models; ``check`` is a condition on names with ``{}`` for the pattern."""
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    return Statement(
        f"create table if not exists {table} (\n"
        f"  name text not null check ({check.format(MODEL_NAME)}),\n"
        "  version integer not null check (version > 0),\n"
        "  sha256 text not null,\n"
        f"  kind text not null check (kind in ({kinds})),\n"
        f"  network {blob} not null,\n"
        f"  weights {blob},\n"
        "  description text not null,\n"
        f"  created {created},\n"
        "  primary key (name, version)\n"
        f"){dialect.replicated if dialect else ''}"
    )


def insert_model(table: str, model: NewModel, **more: Value) -> Statement:
    """The model as the next version of its name; gives the version. ``more`` are further columns."""
    artifact = model.artifact
    assert isinstance(artifact.network, bytes)
    values: dict[str, Value] = {
        "name": model.name,
        "sha256": model.sha256,
        "kind": artifact.kind,
        "network": artifact.network,
        "weights": artifact.weights if isinstance(artifact.weights, bytes) else None,
        "description": model.description.to_json(),
        **more,
    }
    places = ", ".join([PLACE] * len(values))
    return Statement(
        f"insert into {table} (version, {', '.join(values)})\n"
        f"select coalesce(max(version), 0) + 1, {places} from {table} where name = {PLACE} returning version",
        (*values.values(), model.name),
        tag="version",
    )


def select_models(table: str, columns: str, reference: Reference | None = None) -> Statement:
    """Stored models by name and version; of a bare name the newest only."""
    text = f"select {columns} from {table}"
    if reference is None:
        return Statement(f"{text} order by name, version")
    if reference.version is None:
        return Statement(f"{text} where name = {PLACE} order by version desc limit 1", (reference.name,))
    return Statement(f"{text} where name = {PLACE} and version = {PLACE}", (reference.name, reference.version))


def delete_models(table: str, reference: Reference) -> Statement:
    """Remove one version, or all of a name; gives their versions."""
    if reference.version is None:
        return Statement(
            f"delete from {table} where name = {PLACE} returning version", (reference.name,), tag="versions"
        )
    text = f"delete from {table} where name = {PLACE} and version = {PLACE} returning version"
    return Statement(text, (reference.name, reference.version), tag="versions")


def bare(query: str) -> str:
    """A query without what ends a statement."""
    if PLACE in query:
        raise UsageError("the query holds a zero byte")
    return query.strip().rstrip("; \t\r\n")


@dataclass(frozen=True)
class Shape:
    """A user's query, of which the names and types of the columns are known: a key and a picture, or paths alone."""

    query: str
    names: tuple[str, ...]
    is_path: bool

    @classmethod
    def of(cls, query: str, columns: Sequence[tuple[str, str]]) -> Shape:
        """``columns`` are names and kinds: ``blob``, ``text`` or what else it is."""
        kinds = [kind for _, kind in columns]
        if len(columns) not in (1, 2) or kinds[-1] not in ("blob", "text") or kinds == ["blob"]:
            found = ", ".join(f"{name} {kind}" for name, kind in columns[:8])
            raise UsageError(
                f"the query gives {len(columns)} columns ({found}): expected a key and then a picture (bytes, or the "
                "path of a file), or paths alone"
            )
        names = tuple(name for name, _ in columns)
        if names[0].lower() in _TYPES:
            raise UsageError(
                f"the key is called '{names[0]}' like a column of results: write select {names[0]} as id, …"
            )
        return cls(query, names, kinds[-1] == "text")

    @property
    def rows(self) -> str:
        """The query as a table expression with names of ours."""
        if len(self.names) == 1:
            inner = f"select {KEY}, {KEY} from ({self.query}\n) as ringlet_paths ({KEY})"
            return f"({inner}) as ringlet_query ({KEY}, {PICTURE})"
        return f"({self.query}\n) as ringlet_query ({KEY}, {PICTURE})"

    @property
    def columns(self) -> str:
        """The columns of the table of results, quoted."""
        return ", ".join(quoted(name) for name in (self.names[0], *_TYPES))


def check_directory(shape: Shape, allow_directory: str | None) -> None:
    """Paths need a directory where files may be read."""
    if shape.is_path and allow_directory is None:
        raise UsageError(
            f"'{shape.names[-1]}' holds paths: say with --allow-directory DIR below which directory files may be read"
        )

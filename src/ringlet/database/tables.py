"""The SQL of tables: stored models, and results.

The allowlist of names is checked by the table of models too, whoever writes to it. Bytes are stored uncompressed where
that can be said: weights do not compress, and loading is faster.
"""

# ruff: noqa: S608 (identifiers are allowlisted and quoted, values are bound, a query is its author's own)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringlet.database.dialects import Dialect
from ringlet.database.models import KINDS, NewModel
from ringlet.database.names import MODEL_NAME, Reference, quoted
from ringlet.database.statements import PLACE, Statement, Value
from ringlet.errors import UsageError

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
"""The columns of a result, in their order; figures have eight bytes, as those of ``ringlet predict``."""


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

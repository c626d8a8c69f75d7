"""What every database offers: models in, models out, a prediction for every row of a query; opened by its address."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal, Protocol, Self

from ringlet.component import Component, Registry
from ringlet.database.functions import FunctionSettings
from ringlet.database.models import Entry, NewModel
from ringlet.database.names import DatabaseUrl, Reference, TableName, identifier
from ringlet.database.statements import Statement
from ringlet.errors import UnknownNameError
from ringlet.inference.artifact import Artifact

Access = Literal["read", "pretend", "change", "create"]
"""What a connection is for. Only "create" makes a missing file; "pretend" does without one, to plan that. The others
refuse it: an address with a typing error is not a new database."""
Progress = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""


@dataclass(frozen=True)
class Installation:
    """A model that is to be installed, and what else the database shall have for it."""

    model: NewModel
    functions: FunctionSettings | None = None
    """None: functions that are there stay as they are; missing ones are made by default settings."""
    with_functions: bool = True
    """Whether functions are wanted at all."""
    roles: Sequence[str] = ()
    """Who may call them."""


@dataclass(frozen=True)
class Installed:
    """What became of it."""

    reference: Reference
    is_new: bool = True
    """False: the newest version has the same bytes already."""
    server: dict[str, object] = field(default_factory=dict)
    """What the server's Python says about itself, if functions were made."""


@dataclass(frozen=True)
class Scoring:
    """Rows that are to be scored: ``query`` gives a key and a picture (bytes, or a path) for each."""

    model: str
    """What the user calls it: the reference of a stored model, or a path."""
    artifact: Artifact
    """In memory, and verified if it was stored."""
    query: str
    into: TableName
    append: bool = False
    replace: bool = False
    batch_size: int = 32
    threads: int = 1
    allow_directory: str | None = None
    """Where paths may point."""


@dataclass(frozen=True)
class Scored:
    """How many rows there were; null pictures are no errors."""

    num_rows: int
    num_errors: int
    num_nulls: int


class Database(Protocol):
    """An open database. Changes happen completely or not at all."""

    @property
    def shown(self) -> str:
        """Its address without secrets."""

    def plan_install(self, wanted: Installation) -> list[Statement]:
        """What :meth:`install` would run."""

    def install(self, wanted: Installation) -> Installed:
        """Store a model as the next version of its name, and make the functions that run it."""

    def models(self) -> list[Entry]:
        """All stored models, by name and version."""

    def load(self, reference: Reference) -> Artifact:
        """A stored model in memory, verified; UnknownNameError if there is none."""

    def plan_remove(self, reference: Reference) -> list[Statement]:
        """What :meth:`remove` would run."""

    def remove(self, reference: Reference) -> list[Reference]:
        """Remove a version, or all of a name; what was removed."""

    def plan_score(self, wanted: Scoring) -> list[Statement]:
        """What :meth:`score` would run."""

    def score(self, wanted: Scoring, progress: Progress = lambda *_: None) -> Scored:
        """Predict every row of the query and store the results."""

    def script(self, statements: Sequence[Statement], *, shorten: bool = False) -> str:
        """Statements as text, values written out."""

    def close(self) -> None:
        """Leave the database."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


SCHEMA = "ringlet"
DATABASES: Registry[type[DatabaseKind]] = Registry("database", package="ringlet.database", group="databases")


class DatabaseKind(Component, ABC):
    """A kind of database, by the name with which its addresses begin."""

    registry: ClassVar[Registry[Any] | None] = DATABASES

    @abstractmethod
    def open(self, url: str, schema: str, access: Access) -> Database:
        """The database at an address; messages never show its password."""


def connect(url: str, *, schema: str = SCHEMA, access: Access = "create") -> Database:
    """The database at ``duckdb:FILE`` or ``postgresql://…``.

    ``schema`` is where PostgreSQL keeps models and functions; a DuckDB file keeps its models in one table.
    """
    identifier("schema", schema)
    try:
        kind: DatabaseKind = DATABASES.create(url.partition(":")[0])
    except UnknownNameError:
        kind = DATABASES.create(DatabaseUrl.parse(url).kind)  # says what is wrong without the address
    return kind.open(url, schema, access)

"""Names that may become part of SQL, and addresses of databases.

Names: an allowlist, and quotes around them all the same. Addresses: ``duckdb:FILE`` or ``postgresql://…``; a password
is never shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from ringlet.errors import UsageError

MODEL_NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,62}"
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]{0,62}"
_CONTAINER = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_MAX_VERSION = 2**31 - 1


@dataclass(frozen=True)
class Reference:
    """A stored model: ``cars`` is its newest version, ``cars:3`` that one."""

    name: str
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The reference in ``text``, or a UsageError."""
        match = re.fullmatch(rf"({MODEL_NAME})(?::([1-9][0-9]{{0,9}}))?", text)
        version = int(match[2]) if match is not None and match[2] else None
        if match is None or (version is not None and version > _MAX_VERSION):
            raise UsageError(
                f"'{text}' names no model: expected NAME or NAME:VERSION, where a name has at most 63 letters, digits, "
                "'_', '.' and '-', the first of them a letter or '_', and a version is a number from 1 on"
            )
        return cls(match[1], version)

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}:{self.version}"


@dataclass(frozen=True)
class TableName:
    """A table, with its schema if one was given."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """``scores`` or ``schema.scores``."""
        parts = text.split(".")
        if not 1 <= len(parts) <= 2:
            raise UsageError(f"'{text}' names no table: expected NAME or SCHEMA.NAME")
        schema = identifier("schema", parts[0]) if len(parts) == 2 else None
        return cls(schema, identifier("table", parts[-1]))

    @property
    def quoted(self) -> str:
        """As it stands in SQL."""
        return ".".join(quoted(part) for part in (self.schema, self.table) if part is not None)


def model_name(text: str) -> str:
    """``text`` if a model may be called so."""
    reference = Reference.parse(text)
    if reference.version is not None:
        raise UsageError(f"'{text}': a new model gets its version from the database: leave ':{reference.version}' out")
    return reference.name


def identifier(kind: str, text: str) -> str:
    """``text`` if a schema, table, column or role of ours may be called so."""
    return _allowed(kind, text, _IDENTIFIER, "letters, digits and '_', the first no digit")


def container(text: str) -> str:
    """``text`` if it may be the name of a PL/Container runtime."""
    return _allowed("container", text, _CONTAINER, "letters, digits, '_' and '-'")


def quoted(text: str) -> str:
    """An identifier in quotes; whatever is inside stays inside."""
    return '"' + text.replace("\0", "").replace('"', '""') + '"'


def _allowed(kind: str, text: str, pattern: str, expected: str) -> str:
    if re.fullmatch(pattern, text) is None:
        raise UsageError(f"'{text}' cannot be the name of a {kind}: expected at most 63 {expected}")
    return text


# -- addresses --------------------------------------------------------------------------------------------------------
_HIDDEN = "***"
_EXPECTED = "expected duckdb:FILE or postgresql://USER@HOST/DATABASE"


@dataclass(frozen=True)
class DatabaseUrl:
    """A database; :attr:`shown` is what messages may say."""

    kind: Literal["duckdb", "postgresql"]
    location: str = field(repr=False)
    """The file, or the whole address with its password."""
    shown: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, text: str) -> DatabaseUrl:
        """The address in ``text``, or a UsageError that does not repeat it: it may hold a password."""
        scheme, colon, rest = text.partition(":")
        if colon and scheme == "duckdb":
            return _duckdb(rest)
        if colon and scheme in ("postgresql", "postgres") and rest.startswith("//"):
            return _postgresql(text)
        shown = f"'{scheme}:…'" if re.fullmatch("[A-Za-z][A-Za-z0-9+.-]{0,20}", scheme) and colon else "the address"
        raise UsageError(f"{shown} is no database that Ringlet knows: {_EXPECTED}")

    def hide(self, message: str) -> str:
        """A message of the driver without the password."""
        for secret in self.secrets:
            message = message.replace(secret, _HIDDEN)
        return message


def _duckdb(rest: str) -> DatabaseUrl:
    path = rest.removeprefix("//") if rest.startswith("///") else rest
    if not path or path.startswith((":", "//")) or Path(path).is_dir():
        raise UsageError(f"'duckdb:{rest}' names no file: {_EXPECTED}")
    return DatabaseUrl("duckdb", path, f"duckdb:{path}")


def _postgresql(text: str) -> DatabaseUrl:
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError as error:
        raise UsageError(f"the address of the PostgreSQL database cannot be read: {_EXPECTED}") from error
    netloc, query = parts.netloc, parts.query
    hidden = [value for name, value in parse_qsl(query) if "password" in name]
    if password is not None:
        user, _, host = netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:{_HIDDEN}@{host}"
        hidden += [password, unquote(password)]
    query = re.sub(r"([^&=]*password[^&=]*=)[^&]*", rf"\1{_HIDDEN}", query)
    shown = parts._replace(netloc=netloc, query=query).geturl()
    return DatabaseUrl("postgresql", text, shown, tuple(sorted({s for s in hidden if s}, key=len, reverse=True)))

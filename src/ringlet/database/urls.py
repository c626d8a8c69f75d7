"""Where a database is: ``duckdb:FILE`` or ``postgresql://…``. A password is never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from ringlet.errors import UsageError

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

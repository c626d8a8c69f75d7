"""PostgreSQL and its relatives: what a server is, and what it can."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ringlet.database.errors import DatabaseError

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

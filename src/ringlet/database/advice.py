"""What an installation in PostgreSQL that failed would have needed."""

from __future__ import annotations

from typing import Any

from ringlet.database.dialects import Dialect
from ringlet.database.errors import DatabaseError, driver
from ringlet.database.functions import PLPYTHON


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

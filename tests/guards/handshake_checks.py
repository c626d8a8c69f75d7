"""What ranks do in tests of the handshake."""

from __future__ import annotations

from typing import Any

from ringlet.comm.contract import Communicator
from ringlet.guards.agreement import HandshakeError, check_same

FACTS = {"version": "1.2.3", "configuration": "abc", "dtype": "float32"}


def compare(comm: Communicator, changes: dict[str, dict[str, str | None]]) -> dict[str, Any]:
    """Compare facts, of which the ranks in ``changes`` have others (None: not at all)."""
    facts = {name: value for name, value in (FACTS | changes.get(str(comm.rank), {})).items() if value is not None}
    try:
        check_same(comm, facts)
    except HandshakeError as error:
        return {"message": str(error), "exit_code": error.exit_code}
    return {"message": "", "exit_code": 0}

"""Names of machines and how many ranks each takes, from ``--hosts`` or a host file.

Names are checked against a narrow pattern before anything else sees them: they end up among the arguments of mpiexec
and ssh, where a leading dash or a semicolon would be more than a name.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringlet.errors import UsageError

MAX_SLOTS = 65536
MAX_HOSTFILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True)
class Host:
    """A machine and the number of ranks it takes."""

    name: str
    slots: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{self.name[:80]!r} is no host name: expected letters, digits, dots, dashes and underscores, "
                f"beginning with a letter or digit"
            )
        if not 1 <= self.slots <= MAX_SLOTS:
            raise UsageError(f"host '{self.name}' has {self.slots} slots: expected 1 to {MAX_SLOTS}")

    @property
    def is_this_machine(self) -> bool:
        """Whether the name is one of the machine's own."""
        return self.name in ("localhost", "127.0.0.1", socket.gethostname())


def parse_hosts(text: str) -> tuple[Host, ...]:
    """``a:4,b:4``; without a number a host takes one rank."""
    return _distinct(_parse_host(part.strip()) for part in text.split(","))


def read_hostfile(path: str | Path) -> tuple[Host, ...]:
    """One host a line, ``name``, ``name:4`` or ``name slots=4``; ``#`` begins a comment."""
    try:
        if Path(path).stat().st_size > MAX_HOSTFILE_BYTES:
            raise UsageError(f"host file '{path}' has more than {MAX_HOSTFILE_BYTES:,} bytes: expected one host a line")
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"host file '{path}' cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"host file '{path}' is no text: expected one host a line") from error
    entries = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    hosts = []
    for number, entry in entries:
        try:
            hosts += [_parse_line(entry)] if entry else []
        except UsageError as error:
            raise UsageError(f"host file '{path}', line {number}: {error}") from error
    if not hosts:
        raise UsageError(f"host file '{path}' names no host: expected lines such as `node1 slots=4`")
    return _distinct(hosts)


def _parse_line(line: str) -> Host:
    name, *rest = line.split()
    if not rest:
        return _parse_host(name)
    slots = [word.removeprefix("slots=") for word in rest if word.startswith("slots=")]
    unknown = [word for word in rest if not word.startswith(("slots=", "max_slots=", "max-slots="))]
    if len(slots) > 1 or unknown:
        raise UsageError(f"{line[:80]!r} is not understood: expected `name`, `name:4` or `name slots=4`")
    return Host(name, _number(slots[0], name) if slots else 1)


def _parse_host(text: str) -> Host:
    name, colon, slots = text.partition(":")
    return Host(name, _number(slots, name) if colon else 1)


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise UsageError(f"the number of ranks for host {name[:80]!r} is {text[:80]!r}: expected a whole number as in a:4")


def _distinct(hosts: Iterable[Host]) -> tuple[Host, ...]:
    found: dict[str, Host] = {}
    for host in hosts:
        if host.name in found:
            raise UsageError(f"host '{host.name}' is named twice: name it once, with all its ranks")
        found[host.name] = host
    return tuple(found.values())

"""Which sockets the processes of a job accept connections or packets on, as the kernel tells it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from launched import Launched, processes_with

TABLES = {"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}
"""The kernel's tables of sockets, and the state in which one of each accepts what comes."""


class Listener(NamedTuple):
    """A socket that is open for others."""

    process: int
    program: str
    table: str
    address: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        address = ip_address(self.address)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback


def listeners_of(job: Launched) -> list[Listener]:
    """Of a job and all that it has started."""
    return listeners({*processes_with(job.mark), *_descendants(job.process.pid)})


def listeners(processes: Iterable[int]) -> list[Listener]:
    """Of these processes; those that have ended meanwhile have none."""
    found = []
    for process in processes:
        with contextlib.suppress(OSError):
            sockets = _open_sockets(process)
            program = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            for table, state in TABLES.items():
                found += [
                    Listener(process, program, table, *place) for place in _places(process, table, state, sockets)
                ]
    return found


def _open_sockets(process: int) -> set[str]:
    """The inodes of a process's sockets."""
    inodes = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    return inodes


def _places(process: int, table: str, state: str, inodes: set[str]) -> list[tuple[str, int]]:
    lines = Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return [_place(row[1]) for row in rows if row[3] == state and row[9] in inodes]


def _place(text: str) -> tuple[str, int]:
    """Address and port: words of 32 bits in the byte order of this machine, here always the little one."""
    digits, _, port = text.partition(":")
    data = bytes.fromhex(digits)
    data = b"".join(data[start : start + 4][::-1] for start in range(0, len(data), 4))
    return socket.inet_ntop(socket.AF_INET if len(data) == 4 else socket.AF_INET6, data), int(port, 16)


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = set(), [root]
    while waiting:
        process = waiting.pop()
        found.add(process)
        waiting += children.get(process, [])
    return found

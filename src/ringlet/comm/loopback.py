"""What the ranks of one machine open stays on that machine: libraries are told to use the loopback interface.

Gloo, NCCL, TensorPipe, and UCX and libfabric below an MPI, listen on the first real network interface they find, also
where all ranks share a machine. PyTorch's store listens on all of them whatever host it is told.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, MutableMapping
from datetime import timedelta
from typing import Any

from ringlet.forks import never_destroy_in_copies

ADDRESS = "127.0.0.1"
INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
_VARIABLES = (
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
    "FI_TCP_IFACE",
    "FI_SOCKETS_IFACE",
)


def loopback_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for ranks that are all on one machine; those that are set already are not among them.

    None at all if ``MASTER_ADDR`` says that the program meets others elsewhere by itself.
    """
    elsewhere = environ.get("MASTER_ADDR", ADDRESS) not in (ADDRESS, "localhost", "::1")
    if elsewhere or INTERFACE not in {name for _, name in socket.if_nameindex()}:
        return {}
    return {name: INTERFACE for name in _VARIABLES if not environ.get(name)}


def stay_on_this_machine(environ: MutableMapping[str, str]) -> None:
    """Set them in this process, for libraries that it has not initialised yet."""
    environ.update(loopback_environment(environ))


def open_store(host: str, *, only_here: bool, timeout: timedelta, size: int | None = None) -> tuple[Any, str]:
    """A store of ``torch.distributed`` that this rank keeps, and ``port host`` to find it by.

    ``only_here``: all ranks are on this machine, and no one else can connect to it.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    options: dict[str, Any] = {"is_master": True, "timeout": timeout, "wait_for_workers": False}
    port = 0
    if only_here:
        host = ADDRESS
        listener = socket.create_server((ADDRESS, 0))
        port = listener.getsockname()[1]
        options["master_listen_fd"] = listener.detach()  # which belongs to the store from now on
    store = TCPStore(host, port, size, **options)
    never_destroy_in_copies(store)
    return store, f"{store.port} {host}"


def join_store(address: str, *, timeout: timedelta, size: int | None = None) -> Any:
    """The store that another rank keeps, by its ``port host``."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port, _, host = address.partition(" ")
    store = TCPStore(host, int(port), size, is_master=False, timeout=timeout)
    never_destroy_in_copies(store)
    return store

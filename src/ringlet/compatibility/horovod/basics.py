"""What Horovod's programs take from ``horovod.common``: errors and process sets."""

from ringlet.named import CollectiveError as HorovodInternalError
from ringlet.named import ProcessSet
from ringlet.named.session import add_process_set, global_process_set, remove_process_set

__all__ = [
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "ProcessSet",
    "add_process_set",
    "global_process_set",
    "remove_process_set",
]


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """Raised by Horovod when hosts come or go. Ringlet starts a job again instead, so nothing raises it."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("hosts have changed")
        self.skip_sync = skip_sync

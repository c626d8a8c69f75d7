"""Groups and devices: which tensors a group takes itself, and which it hands to a group of another backend.

``init_process_group("cpu:ringlet,cuda:nccl")`` names a backend for each kind of device. PyTorch makes only the first
of them that is a whole process group, as Ringlet's is, and leaves it all devices. So a group asks PyTorch for groups
of the other backends, each when the first tensor of its device comes.
"""

# PyTorch exports these names without saying so to type checkers.
# mypy: disable-error-code="attr-defined"
from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import BackendConfig

from ringlet import torch_backend
from ringlet.errors import CommunicationError

if TYPE_CHECKING:
    from ringlet.torch.process_group import RingletProcessGroup

Method = TypeVar("Method", bound=Callable[..., Any])


def by_device(method: Method) -> Method:
    """A method of a group, which the group of another backend runs if the tensors are on such a device."""

    @wraps(method)
    def chosen(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.devices.others:
            group = self.devices.other_group(_first_tensor((arguments, tuple(options.values()))))
            if group is not None:
                return getattr(group, method.__name__)(*arguments, **options)
        return method(self, *arguments, **options)

    return chosen  # type: ignore[return-value]


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, list | tuple):
        return next((found for part in value if (found := _first_tensor(part)) is not None), None)
    return value if isinstance(value, Tensor) else None


@final
class Devices:
    """The devices of a group, as its user has named them."""

    def __init__(self, group: RingletProcessGroup, named: str = torch_backend.NAME, pg_options: Any = None) -> None:
        """``pg_options`` must be those of a backend that is ``named``."""
        self._backends: dict[str, str] = dict(BackendConfig(dist.Backend(named)).get_device_backend_map())
        if pg_options is not None and pg_options.backend not in self._backends.values():
            raise CommunicationError(
                f"pg_options are {type(pg_options).__qualname__} of backend '{pg_options.backend}', but the group has "
                f"'{named}': leave them out"
            )
        self._group = group
        self._pg_options = pg_options
        self._groups: dict[str, Any] = {}
        self.others = {device for device, name in self._backends.items() if name != torch_backend.NAME}
        """Devices that have another backend."""

    @property
    def types(self) -> list[torch.device]:
        """All of them."""
        return [torch.device(device) for device in self._backends]

    def backend(self, device: torch.device) -> Any:
        """What answers for a device; RuntimeError for one that the group does not have, as PyTorch has it."""
        if device.type not in self._backends:
            raise RuntimeError(
                f"No backend type associated with device type {device.type}: this group has {', '.join(self._backends)}"
            )
        if device.type in self.others:
            return self._other(device.type)._get_backend(device)
        return DeviceBackend(self._group)

    def other_group(self, tensor: Tensor | None) -> Any:
        """The group of another backend that takes this tensor, if one does."""
        device = "cpu" if tensor is None else tensor.device.type
        return self._other(device) if device in self.others else None

    def _other(self, device: str) -> Any:
        """The group of all members for one device; every member must ask for it."""
        if device not in self._groups:
            name, options = self._backends[device], self._pg_options
            self._groups[device] = dist.new_group(
                dist.get_process_group_ranks(self._group),
                backend=f"{device}:{name}",
                timeout=self._group.timeout,
                pg_options=options if options is not None and options.backend == name else None,
                use_local_synchronization=True,
            )
        return self._groups[device]


@final
class DeviceBackend:
    """The backend of a group for its own devices. PyTorch's class of that name can only be derived from in C++."""

    supports_splitting = False
    supports_coalescing = True
    supports_time_estimate = False

    def __init__(self, group: RingletProcessGroup) -> None:
        self._group = group

    def rank(self) -> int:
        """Of this process in the group."""
        return self._group.rank()

    def size(self) -> int:
        """The number of ranks."""
        return self._group.size()

    def name(self) -> str:
        """The name by which the backend was registered."""
        return torch_backend.NAME

    @property
    def options(self) -> Any:
        """Its name and time-out."""
        return torch._C._distributed_c10d.Backend.Options(torch_backend.NAME, self._group.timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long collectives may take from now on."""
        self._group.set_timeout(timeout)

    _set_default_timeout = set_timeout

    def supports_tensor_alloc(self, _: torch.device) -> bool:
        """Whether tensors could be made in memory of its own: any memory will do."""
        return False

    def shutdown(self) -> None:
        """End the group."""
        self._group.shutdown()

    def abort(self) -> None:
        """Let everything that is under way fail on this rank."""
        self._group.abort()

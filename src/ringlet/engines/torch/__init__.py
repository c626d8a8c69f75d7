"""The engine on PyTorch: the same spec, flat buffers and random streams, PyTorch's arithmetic.

``program`` makes a function of a spec, of the expressions that operations have for PyTorch (the export to PyTorch takes
them too), ``losses`` has the losses, ``devices`` joins tensors and flat buffers, on the processor without a copy, and
finds the GPUs, ``replica`` runs it all. A module that a program brings is looked at by ``module_spec`` and run by
``module_replica``. Importing this package does not import PyTorch; its modules do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

from ringlet.allocator import keep_freed_memory
from ringlet.component import option
from ringlet.engines.engine import Engine
from ringlet.libraries import require
from ringlet.models.module_spec import ModuleSpec
from ringlet.models.spec import ModelSpec

if TYPE_CHECKING:
    from ringlet.engines.modules import ModuleReplica
    from ringlet.engines.torch.replica import TorchReplica


@final
class Torch(Engine):
    """PyTorch, on the processor or on GPUs."""

    name: ClassVar[str] = "torch"
    library: ClassVar[str | None] = "torch"
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", "auto: a GPU for each worker of a machine that has any, else the processor", affects_result=False
    )
    exact: bool = option(False, "only convolution algorithms that round like the direct one")

    @property
    def takes_gpus(self) -> bool:
        """Unless the processor was asked for."""
        return self.device != "cpu"

    def build(self, spec: ModelSpec, *, device: str = "cpu", tuning: str = "measured", **options: Any) -> TorchReplica:
        """A replica."""
        del tuning
        keep_freed_memory()
        require("torch")
        from ringlet.engines.torch.replica import TorchReplica

        return TorchReplica(spec, device=device, exact=self.exact, **options)

    def build_module(self, spec: ModuleSpec, *, device: str = "cpu", **options: Any) -> ModuleReplica:
        """A replica of a PyTorch module."""
        if spec.framework != self.name:
            return super().build_module(spec, device=device, **options)
        keep_freed_memory()
        from ringlet.engines.torch.module_replica import TorchModuleReplica

        return TorchModuleReplica(spec, device=device, exact=self.exact, **options)

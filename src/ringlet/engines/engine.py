"""Engines by name, with what each can do and its options; their frameworks are imported when one is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ringlet.component import Component, Registry, option
from ringlet.errors import UsageError

if TYPE_CHECKING:
    from ringlet.engines.contract import Replica
    from ringlet.engines.modules import ModuleReplica
    from ringlet.losses import Loss
    from ringlet.models.module_spec import ModuleSpec, Network
    from ringlet.models.spec import ModelSpec

ENGINES: Registry[type[Engine]] = Registry("engine", package="ringlet.engines", group="engines")


class Engine(Component, ABC):
    """What computes passes of a network: its name, its options and what it can do."""

    registry: ClassVar[Registry[Any] | None] = ENGINES
    library: ClassVar[str | None] = None
    """The package that it needs."""
    knows_memory: ClassVar[bool] = False
    """Whether the memory of a pass is known to the byte before it runs."""
    measures_algorithms: ClassVar[bool] = False
    """Whether it measures which algorithms are fastest: the ranks of a machine then do so one after the other."""
    adapts_threads: ClassVar[bool] = False
    """Whether the number of threads may change between steps."""

    threads: int | None = option(
        None,
        "threads of each worker's arithmetic; default: the cores, shared by a machine's workers",
        affects_result=False,
        ge=1,
        le=4096,
    )
    kernels: Literal["compiled", "reference"] | None = option(
        None, "kernels of updates, and of passes on engine native; default: compiled where built"
    )

    def activation_bytes(
        self, spec: Network, local_batch_size: int, dtype: str, loss: str | Loss, *, training: bool = True
    ) -> int:
        """Activations and their gradients in a training pass, or activations in inference: an estimate.

        Every node's output is kept for the backward pass, and the largest one has a gradient on either side of a layer;
        inference holds the two largest at once.
        """
        from ringlet.kernels.bfloat16 import item_size

        del loss
        outputs = [prod(shape) for shape in spec.shapes.values()]
        return ((sum(outputs) if training else 0) + 2 * max(outputs)) * local_batch_size * item_size(dtype)

    @property
    def takes_gpus(self) -> bool:
        """Whether it may compute on GPUs."""
        return False

    @abstractmethod
    def build(self, spec: ModelSpec, *, device: str = "cpu", tuning: str = "measured", **options: Any) -> Replica:
        """A replica; ``options`` are those of :class:`~ringlet.engines.contract.Replica`.

        ``device`` is PyTorch's name of one; ``tuning`` is ``"rule"`` where choices must not depend on measurements. A
        framework that is not installed is a :class:`~ringlet.errors.UsageError` that says how to get it.
        """

    def build_module(self, spec: ModuleSpec, *, device: str = "cpu", **options: Any) -> ModuleReplica:
        """A replica of a module that a program brought, on the engine of its framework; others refuse it."""
        del device, options
        raise UsageError(
            f"engine {self.name} cannot train '{spec.name}', a module of {spec.framework}: leave engine out, or give "
            f"engine = {spec.framework}"
        )


def create_replica(engine: str, spec: ModelSpec, *, exact: bool = False, **options: Any) -> Replica:
    """A replica on the engine of that name, for programs that need no configuration."""
    chosen: Engine = ENGINES.create(engine, **({"exact": True} if exact else {}))
    return chosen.build(spec, **options)

"""What Horovod's names mean, once for PyTorch, Keras and programs that import ``horovod``.

Who this process is, reductions and their old forms, what travels in place of a value, learning rates for many ranks.
Before ``init`` most questions raise a ValueError.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from ringlet.comm import world
from ringlet.named import session
from ringlet.named.reductions import Reduction
from ringlet.named.session import (
    ProcessSet,
    add_process_set,
    global_process_set,
    init,
    is_initialized,
    remove_process_set,
    shutdown,
    start_timeline,
    stop_timeline,
)
from ringlet.named.submissions import ArgumentsError, CollectiveError, Submission

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "barrier",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "sycl_built",
]
"""What ``ringlet.torch``, ``ringlet.keras`` and ``ringlet.tensorflow`` all have."""

HorovodInternalError = CollectiveError
"""What a failed collective raises."""


class HostsUpdatedInterrupt(RuntimeError):  # noqa: N818  Horovod's name
    """Raised by ``commit`` on all ranks when ``on_hosts_updated`` was called on one; training then continues."""

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("the hosts of this job have changed")
        self.skip_sync = skip_sync


# -- reductions -------------------------------------------------------------------------------------------------------
Average = Reduction.AVERAGE
"""The mean over ranks."""
Sum = Reduction.SUM
"""The sum over ranks."""
Adasum = Reduction.ADASUM
"""A sum that adds what is orthogonal and averages what is parallel (Maleki et al. 2021)."""
Min = Reduction.MIN
"""The least value over ranks, element by element."""
Max = Reduction.MAX
"""The largest value over ranks, element by element."""
Product = Reduction.PRODUCT
"""The product over ranks, element by element."""


@dataclass(frozen=True)
class Scaling:
    """How values are combined: ``prescale`` multiplies inputs, ``postscale`` results."""

    op: Reduction = Reduction.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0


def scaling(op: object, average: bool | None, prescale: float, postscale: float, *, depth: int = 3) -> Scaling:
    """From Horovod's arguments; ``average`` is an old form of ``op``, and no ``op`` means Average.

    The user's code, for a warning, is ``depth`` calls above.
    """
    if average is not None:
        if op is not None:
            raise ArgumentsError(f"both op={op} and average={average} were given: expected op alone")
        warnings.warn("average=… has been replaced: use op=Average or op=Sum", DeprecationWarning, stacklevel=depth)
        op = Average if average else Sum
    return Scaling(check_op(op), float(prescale), float(postscale))


def check_op(op: object) -> Reduction:
    """The reduction itself, Average for None."""
    if op is None:
        return Average
    if not isinstance(op, Reduction):
        raise ArgumentsError(f"op={op!r} is no reduction: expected Average, Sum, Adasum, Min, Max or Product")
    return op


# -- collectives without values ---------------------------------------------------------------------------------------
def barrier(process_set: ProcessSet | None = None) -> None:
    """Return when all ranks of the process set have come here."""
    collectives = session.collectives(process_set)
    collectives.run(Submission("barrier", collectives.default_name("barrier")))


def join(process_set: ProcessSet | None = None) -> int:
    """Contribute zeros to all allreduces of the others until they have joined too; gives the rank that came last.

    An Average still divides by all ranks. Other collectives raise until all have joined.
    """
    (last,) = session.collectives(process_set).run(Submission("join", "join"))
    return int(last)


# -- what travels in place of a value ---------------------------------------------------------------------------------
_BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}


class Compressor:
    """A way to make values smaller before they travel, and to undo it; own ones derive from it."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """What travels, and what :meth:`decompress` will need to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """What came, as it was before up to rounding."""
        raise NotImplementedError


class CastCompressor(Compressor):
    """Floating values that are wider travel as ``wire``; sums are made in float32 and rounded once more.

    float16 has 11 significant bits but ends at 65504: larger values become infinite. bfloat16 has 8 bits and the range
    of float32, so it is the one to take together with loss scaling. Each framework says how it casts.
    """

    wire: ClassVar[str | None] = None
    """None: everything travels as it is."""

    @classmethod
    def wire_dtype(cls, dtype: str) -> str:
        """As what values of this dtype travel."""
        return cls.wire if cls.wire is not None and _BITS.get(dtype, 0) > _BITS[cls.wire] else dtype

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """The context is the dtype that it had; None if nothing was cast."""
        if cls.wire is None:
            return tensor, None
        own = cls.dtype_of(tensor)
        wire = cls.wire_dtype(own)
        return (tensor, None) if wire == own else (cls.cast(tensor, wire), own)

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Cast back."""
        return tensor if ctx is None else cls.cast(tensor, ctx)

    @staticmethod
    def dtype_of(tensor: Any) -> str:
        """The name of its dtype."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: str) -> Any:
        """The same values in another dtype."""
        raise NotImplementedError


# -- learning rates: Goyal et al., Accurate, large minibatch SGD, 2017 (arXiv 1706.02677) -----------------------------
RATE_RULES = ("linear", "sqrt", "none")


def rate_factor(rule: str, num_batches: int) -> float:
    """By how much the learning rate grows with a batch ``num_batches`` times as large."""
    if rule not in RATE_RULES:
        raise ArgumentsError(f"unknown rule '{rule}' for the learning rate: expected one of {', '.join(RATE_RULES)}")
    return {"linear": float(num_batches), "sqrt": math.sqrt(num_batches), "none": 1.0}[rule]


def warmup_factor(done: float, length: float, size: int) -> float:
    """Rises linearly from 1 / size to 1 while ``done`` rises from 0 to ``length``."""
    return (min(done, length) * (size - 1) / length + 1.0) / size if length else 1.0


# -- who this process is ----------------------------------------------------------------------------------------------
def rank() -> int:
    """This process's number among all, from 0."""
    return session.collectives().rank


def size() -> int:
    """The number of all processes."""
    return session.collectives().size


def local_rank() -> int:
    """This process's number on its machine, from 0."""
    session.collectives()
    return world.local_rank()


def local_size() -> int:
    """The number of processes on this machine."""
    session.collectives()
    return world.local_size()


def cross_rank() -> int:
    """The number of this process's machine, counted among those that have a process of its local rank."""
    session.collectives()
    return world.cross_rank()


def cross_size() -> int:
    """The number of machines that have a process of this one's local rank."""
    session.collectives()
    return world.cross_size()


def is_homogeneous() -> bool:
    """Whether all machines have the same number of processes."""
    session.collectives()
    return len(set(world.communicator().local_sizes)) == 1


def mpi_built() -> bool:
    """Whether MPI can be used: mpi4py is installed."""
    return find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    """Whether ranks talk through MPI."""
    session.collectives()
    return world.communicator().name == "mpi"


def mpi_threads_supported() -> bool:
    """Whether several threads may talk at once: collectives from any thread are put in order, so they may."""
    session.collectives()
    return True


def gloo_built() -> bool:
    """Whether Gloo can be used: torch is installed."""
    return find_spec("torch") is not None


def gloo_enabled() -> bool:
    """Whether ranks talk through ``torch.distributed``."""
    session.collectives()
    return world.communicator().name == "torch"


def nccl_built() -> int:
    """Ringlet does not use NCCL."""
    return 0


def ddl_built() -> bool:
    """Ringlet does not use DDL."""
    return False


def ccl_built() -> bool:
    """Ringlet does not use oneCCL."""
    return False


def cuda_built() -> bool:
    """Ringlet exchanges in the memory of the CPU."""
    return False


def rocm_built() -> bool:
    """Ringlet exchanges in the memory of the CPU."""
    return False


def sycl_built() -> bool:
    """Ringlet exchanges in the memory of the CPU."""
    return False

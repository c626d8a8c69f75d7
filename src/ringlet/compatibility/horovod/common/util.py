"""``horovod.common.util``: private helpers of Horovod that programs import all the same."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from ringlet.named import horovod
from ringlet.named.reductions import is_power_of_two

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:  # noqa: ARG001
    """Whether the framework is installed: there is no extension to build for it."""
    return ext_base_name != "mxnet" and find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:  # noqa: ARG001
    """Return if the framework can be used, else raise ImportError."""
    framework = ext_name.rpartition(".")[2]
    if not extension_available(framework):
        raise ImportError(f"{ext_name} cannot be used: {framework} is not installed")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:  # noqa: ARG001
    """Whether the framework sees a GPU."""
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    from ringlet.tensorflow import places

    return places.gpu_available()


def mpi_built(verbose: bool = False) -> bool:  # noqa: ARG001
    """Whether MPI can be used."""
    return horovod.mpi_built()


def gloo_built(verbose: bool = False) -> bool:  # noqa: ARG001
    """Whether Gloo can be used."""
    return horovod.gloo_built()


def nccl_built(verbose: bool = False) -> int:  # noqa: ARG001
    """Ringlet does not use NCCL."""
    return horovod.nccl_built()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether Adasum can combine so many ranks."""
    return is_power_of_two(num_rank)


def split_list(items: Sequence[Any], num_parts: int) -> list[Sequence[Any]]:
    """Parts of about the same length; the first ones have one more if it does not divide."""
    length, rest = divmod(len(items), num_parts)
    ends = [(part + 1) * length + min(part + 1, rest) for part in range(num_parts)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def is_iterable(x: object) -> bool:
    """Whether there is an iterator of it."""
    return isinstance(x, Iterable) or hasattr(x, "__getitem__")


def get_ext_suffix() -> str:
    """How files of compiled modules end."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def support_non_legacy_keras_optimizers(k: Any) -> bool:  # noqa: ARG001
    """Keras 3 has no others."""
    return True


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Within: these variables are set; those with None stay as they are."""
    wanted = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ.update({} if value is None else {name: value})

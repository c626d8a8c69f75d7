"""Loaders and data sets of PyTorch, Keras and TensorFlow: what is inside, and what of them Ringlet does itself.

Ringlet shuffles, cuts and shards by itself, in the same way for all data. So of a loader its data set is taken. What
the loader would have done otherwise is said in a remark where the samples stay the same, and refused where they would
not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ringlet.data.values import is_instance_of
from ringlet.errors import ConfigError, DataError

_TORCH = "torch.utils.data"
_OWN_ORDER = ("SequentialSampler", "RandomSampler")
Stream = tuple[Iterable[Any], bool | None]
"""Items in order, and whether they are batches, if that is known."""


def is_torch_loader(data: Any) -> bool:
    """Whether it is a DataLoader of PyTorch."""
    return is_instance_of(data, _TORCH, "DataLoader")


def dataset_of(data: Any) -> Any:
    """The data set inside a loader; anything else is given back."""
    return data.dataset if is_torch_loader(data) else data


def batch_size_of(data: Any) -> int | None:
    """How many samples a loader takes at a time; None if it does not say."""
    size = getattr(data, "batch_size", None) if is_torch_loader(data) else None
    return size if isinstance(size, int) else None


def unwrapped(data: Any, what: str) -> tuple[Any, list[str]]:
    """The data set inside a loader, and remarks about what of the loader is not used."""
    if is_torch_loader(data):
        _check_loader(data, what)
        remarks = [f"{what}: of the DataLoader its data set is used; order, batches and sharding are Ringlet's"]
        inner = data.dataset
    else:
        inner, remarks = data, []
    if is_instance_of(inner, _TORCH, "TensorDataset"):
        inner = tuple(inner.tensors)
        if len(inner) not in (2, 3):
            raise DataError(
                f"{what}: a TensorDataset of {len(inner)} tensors: expected inputs, targets and perhaps weights"
            )
    return inner, remarks


def _check_loader(loader: Any, what: str) -> None:
    """Refuse a loader that changes which samples there are, or what they are."""
    library: Any = sys.modules[_TORCH]  # which has made the loader
    if loader.collate_fn is not library.default_collate and loader.batch_size is not None:
        name = getattr(loader.collate_fn, "__name__", type(loader.collate_fn).__name__)
        raise ConfigError(
            f"{what}: the DataLoader puts batches together by '{name}', Ringlet does that itself: let the data set's "
            "__getitem__ give samples of one shape, and give the data set"
        )
    if is_instance_of(loader.dataset, _TORCH, "IterableDataset"):
        return
    sampler = loader.sampler
    is_share = isinstance(sampler, library.DistributedSampler)
    known = type(sampler).__name__ in _OWN_ORDER or is_share
    takes_all = is_share or (not getattr(sampler, "replacement", False) and len(sampler) == len(loader.dataset))
    if type(loader.batch_sampler) not in (library.BatchSampler, type(None)) or not known or not takes_all:
        name = type(sampler if not known or not takes_all else loader.batch_sampler).__name__
        raise ConfigError(
            f"{what}: the DataLoader chooses samples by its {name}, Ringlet reads each of them once per epoch: give "
            "the data set itself, a torch Subset of it, or weights of the samples: (x, y, weight)"
        )


def stream_of(data: Any, num_samples: int | None, what: str) -> Stream | None:
    """The items of data that libraries read in order; None for anything else."""
    if is_instance_of(data, "tensorflow", "data.Dataset"):
        return _tensorflow_stream(data, num_samples, what)
    if _is_keras_batches(data):
        return _keras_stream(data, what)
    if is_instance_of(data, _TORCH, "IterableDataset"):
        return data, None
    return None


def _tensorflow_stream(data: Any, num_samples: int | None, what: str) -> Stream:
    if int(data.cardinality()) == -1 and num_samples is None:  # tf.data.INFINITE_CARDINALITY
        raise DataError(f"{what}: a tf.data.Dataset without end (repeat): leave repeat() out, or give num_samples")
    spec = data.element_spec
    targets = spec[1] if isinstance(spec, tuple | list) and len(spec) > 1 else None
    shape = getattr(targets, "shape", None)
    is_sample = shape is not None and shape.rank == 0
    return data.as_numpy_iterator(), False if is_sample else None


def _is_keras_batches(data: Any) -> bool:
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(data).__mro__}
    return bool(names & {"keras.PyDataset", "keras.Sequence", "tf_keras.Sequence"})


def _keras_stream(data: Any, what: str) -> Stream:
    try:
        count = len(data)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise DataError(
            f"{what}: a {type(data).__name__} that does not say how many batches it has ({error})"
        ) from error
    return (data[index] for index in range(count)), True

"""Data of PyTorch, Keras, TensorFlow and JAX: the same samples as the arrays inside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringlet.data import as_dataset
from ringlet.data.source import Source, weights_of
from ringlet.errors import ConfigError, DataError

RNG = np.random.default_rng(8)
IMAGES = RNG.random((12, 3, 6, 5)).astype(np.float32)
LABELS = np.arange(12) % 3


def check_same(source: Source) -> None:
    inputs, targets = source.read(np.arange(len(source)))
    np.testing.assert_array_equal(inputs, IMAGES)
    np.testing.assert_array_equal(targets, LABELS)


# -- PyTorch ----------------------------------------------------------------------------------------------------------
torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)


class Samples(Dataset[Any]):
    """As torchvision's data sets: ``targets``, ``classes``, and transforms in ``__getitem__``."""

    classes = ("ant", "bee", "cow")

    def __init__(self) -> None:
        self.targets = LABELS.tolist()

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(IMAGES[index]), int(LABELS[index])


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return zip(IMAGES, LABELS.tolist(), strict=True)


TENSORS = torch.from_numpy(IMAGES), torch.from_numpy(LABELS)


@pytest.mark.parametrize(
    "given",
    [
        TENSORS,
        (TENSORS[0].requires_grad_(), LABELS),
        Samples(),
        TensorDataset(*TENSORS),
        Stream(),
        DataLoader(Samples(), batch_size=4, shuffle=True),
        DataLoader(Samples(), batch_size=None),
        DataLoader(TensorDataset(*TENSORS), batch_size=5, drop_last=True),
        DataLoader(Stream(), batch_size=4),
        DataLoader(Samples(), sampler=DistributedSampler(Samples(), num_replicas=2, rank=1)),
    ],
    ids=["tensors", "gradients", "map", "tensor", "iterable", "loader", "unbatched", "last", "stream", "distributed"],
)
def test_everything_of_torch_holds_the_same_samples(given: Any) -> None:
    check_same(as_dataset(given).train)


def test_class_names_and_parts_of_a_data_set_are_known() -> None:
    dataset = as_dataset(Subset(Samples(), [1, 4, 5]), test=Samples())
    assert dataset.class_names == ("ant", "bee", "cow")
    assert dataset.train.read(np.arange(3))[1].tolist() == [1, 1, 2]


def test_half_precision_becomes_float32() -> None:
    dataset = as_dataset((TENSORS[0].detach().bfloat16(), TENSORS[1]))
    np.testing.assert_allclose(dataset.train.read(np.arange(12))[0], IMAGES, atol=4e-3)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda: DataLoader(Samples(), batch_size=4, collate_fn=lambda rows: rows), "puts batches together by"),
        (lambda: DataLoader(Samples(), sampler=WeightedRandomSampler([1.0] * 12, 12)), "its WeightedRandomSampler"),
        (lambda: DataLoader(Samples(), sampler=[1, 2, 3]), "by its list"),
        (lambda: DataLoader(Samples(), batch_sampler=[[0, 1], [2]]), "its list"),
    ],
)
def test_a_loader_that_changes_the_samples_is_refused(loader: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_dataset(loader())


def test_weights_come_with_samples() -> None:
    dataset = as_dataset(TensorDataset(*TENSORS, torch.arange(12)))
    np.testing.assert_array_equal(weights_of(dataset.train, np.arange(12)), np.arange(12))
    rows = [(IMAGES[index], LABELS[index], index / 2) for index in range(12)]
    np.testing.assert_array_equal(weights_of(as_dataset(rows).train, np.array([3, 1])), [1.5, 0.5])


# -- JAX, Keras, TensorFlow -------------------------------------------------------------------------------------------
def test_arrays_of_jax_are_arrays() -> None:
    # in a process of its own: JAX's threads would stay in that of the tests, where others fork
    program = (
        "import jax.numpy, numpy\n"
        "from ringlet.data import as_dataset\n"
        "images = numpy.arange(96, dtype=numpy.float32).reshape(8, 3, 2, 2)\n"
        "labels = numpy.arange(8) % 2\n"
        "source = as_dataset((jax.numpy.asarray(images), jax.numpy.asarray(labels))).train\n"
        "found, targets = source.read(numpy.arange(len(source)))\n"
        "known = images.reshape(8, -1).tolist()\n"
        "places = [known.index(image.ravel().tolist()) for image in found]\n"
        "assert targets.tolist() == [place % 2 for place in places], (places, targets)\n"
        "print(len(places))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 6


@pytest.mark.xdist_group("tensorflow-data")
def test_tensorflow_and_keras_hold_the_same_samples() -> None:
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    plain = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
            return IMAGES[5 * index : 5 * index + 5], LABELS[5 * index : 5 * index + 5]

    named = tf.data.Dataset.from_tensor_slices({"image": IMAGES, "label": LABELS})
    unknown = plain.filter(lambda _, label: label >= 0)
    for given in (
        plain,
        plain.batch(5),
        plain.batch(4, drop_remainder=True),
        named,
        unknown,
        Batches(),
        (tf.constant(IMAGES), LABELS),
    ):
        check_same(as_dataset(given).train)
    with pytest.raises(DataError, match="without end"):
        as_dataset(plain.repeat())
    assert len(as_dataset(plain.repeat(), num_samples=30).train) == 30

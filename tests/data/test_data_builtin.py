import hashlib
from importlib import resources

import numpy as np
import pytest

from ringlet.data import Dataset, builtin, load_dataset, partition
from ringlet.data.builtin import ShapesSource, SyntheticSource
from ringlet.errors import DataError


def test_digits_are_shipped_with_their_attribution() -> None:
    dataset = load_dataset("digits")
    assert (len(dataset.train), len(dataset.test), dataset.input_shape) == (1437, 360, (1, 8, 8))
    assert dataset.train.read(np.arange(1437))[0].max() == 16
    text = resources.files("ringlet.data").joinpath("builtin/ATTRIBUTION.md").read_text("utf-8")
    assert "Alpaydin" in text
    assert "CC BY 4.0" in text


def both_parts(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    parts = dataset.train.read(np.arange(1437)), dataset.test.read(np.arange(360))
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return images, labels


def test_shipped_digits_equal_the_original(real_data) -> None:
    images, labels = both_parts(load_dataset("digits"))
    places = np.argsort(np.concatenate(partition.split_indices(1797, builtin.SPLIT_SEED, 360)))
    with np.load(real_data / "digits" / "digits_u8.npz") as original:
        np.testing.assert_array_equal(images[places, 0], original["images"])
        np.testing.assert_array_equal(labels[places], original["labels"])


@pytest.mark.parametrize("seed", [0, 1])
def test_the_test_digits_are_the_same_for_every_seed(seed: int) -> None:
    images, _ = load_dataset("digits", seed=seed, validation_split=0.2).test.read(np.arange(360))
    digest = hashlib.sha256(images.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "d93b8a391b426be2416616c6b8e97363719a55b866b4f093a6e08e84fb3b2b94"


def test_the_digits_of_both_parts_are_mixed_over_the_whole_file_and_all_classes() -> None:
    held_out = partition.split_indices(1797, builtin.SPLIT_SEED, 360)[1]
    labels = load_dataset("digits").test.read(np.arange(360))[1]
    assert held_out.min() < 20
    assert held_out.max() > 1776
    assert np.bincount(labels, minlength=10).min() >= 20


def test_digits_can_be_brought_to_the_size_of_mnist() -> None:
    dataset = load_dataset("digits", image_size=28, input_shape=(1, 28, 28))
    small = load_dataset("digits").train.read(np.array([0]))[0]
    large = dataset.train.read(np.array([0]))[0]
    assert large.shape == (1, 1, 28, 28)
    assert large.dtype == np.uint8
    assert abs(large.mean() - small.mean()) < 0.5


@pytest.mark.parametrize(
    "make",
    [lambda seed: SyntheticSource((3, 9, 7), 5, 50, seed=seed), lambda seed: ShapesSource((3, 20, 24), 50, seed=seed)],
)
def test_a_made_sample_is_a_pure_function_of_seed_and_index(make) -> None:
    source = make(3)
    together = source.read(np.arange(50))
    alone = make(3).read(np.array([17]))
    for whole, one in zip(together, alone, strict=True):
        np.testing.assert_array_equal(whole[17], one[0])
    assert (make(4).read(np.arange(50))[0] != together[0]).any()
    assert len({image.tobytes() for image in together[0]}) == 50


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 224, 224), (7,), (2, 5, 3)])
def test_synthetic_data_has_any_shape(shape: tuple[int, ...]) -> None:
    dataset = load_dataset("synthetic", input_shape=shape, num_classes=7, num_samples=30)
    inputs, labels = dataset.train.read(np.arange(30))
    assert inputs.shape == (30, *shape)
    assert len(dataset.test) == 6
    assert 0 <= labels.min() <= labels.max() < 7


def test_synthetic_classes_can_be_told_apart_and_carry_over_to_the_test_part() -> None:
    dataset = load_dataset("synthetic", input_shape=(1, 12, 12), num_classes=4, num_samples=200)
    inputs, labels = dataset.train.read(np.arange(200))
    means = np.stack([inputs[labels == label].mean(axis=0) for label in range(4)])
    test_inputs, test_labels = dataset.test.read(np.arange(40))
    distance = ((test_inputs[:, None] - means[None]) ** 2).sum(axis=(2, 3, 4))
    assert (distance.argmin(axis=1) == test_labels).all()
    assert not {image.tobytes() for image in inputs} & {image.tobytes() for image in test_inputs}


def test_shapes_have_masks_that_cover_a_part_of_each_image() -> None:
    dataset = load_dataset("shapes", image_size=(48, 40), num_samples=60)
    inputs, masks = dataset.train.read(np.arange(60))
    assert inputs.shape == (60, 3, 48, 40)
    assert masks.shape == (60, 1, 48, 40)
    assert set(np.unique(masks)) == {0.0, 1.0}
    share = masks.mean(axis=(1, 2, 3))
    assert share.min() > 0.0
    assert share.max() < 0.8
    inside = (inputs.mean(axis=1, keepdims=True) * masks).sum() / masks.sum()
    assert inside > inputs.mean() + 20


def test_a_shape_is_the_same_object_at_every_size() -> None:
    small, large = (ShapesSource((1, size, size), 5).read(np.arange(5))[1] for size in (32, 64))
    assert np.abs(small.mean(axis=(1, 2, 3)) - large.mean(axis=(1, 2, 3))).max() < 0.02


@pytest.mark.parametrize("shape", [(3, 4, 64), (9, 64, 64), (64,)])
def test_impossible_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="cannot make"):
        load_dataset("shapes", input_shape=shape)

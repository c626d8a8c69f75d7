"""Mixup and cutmix: partners by a hash of the sample, targets as shares, the same however the batch is cut."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.data import Augmentation, BatchLoader
from ringlet.data.augmentation import CutMix, Flip, MixUp
from ringlet.data.augmentation.base import Draw
from ringlet.data.augmentation.mixing import beta
from ringlet.data.builtin import ShapesSource
from ringlet.data.source import ArraySource
from ringlet.errors import UsageError

COUNT, CLASSES = 60, 5


def one_value_per_sample(dtype: type = np.float32) -> ArraySource:
    """Sample i is an image full of i, of class i % 5: the result tells who was mixed with whom."""
    images = np.arange(COUNT, dtype=dtype).reshape(-1, 1, 1, 1).repeat(8, axis=2).repeat(10, axis=3)
    return ArraySource(images, np.arange(COUNT) % CLASSES, CLASSES)


def batches(augmentation: Augmentation, source: object = None, **options: object) -> list:
    source = one_value_per_sample() if source is None else source
    loader = BatchLoader(source, global_batch_size=20, seed=1, augmentation=augmentation, **options)
    return list(loader.epoch(3))


def by_sample(found: list) -> dict[int, tuple[bytes, bytes]]:
    return {
        index: (inputs.tobytes(), targets.tobytes())
        for batch in found
        for index, inputs, targets in zip(batch.indices.tolist(), batch.inputs, batch.targets, strict=True)
    }


def test_mixup_is_a_weighted_mean_of_two_samples_and_of_their_classes() -> None:
    partners = set()
    for batch in batches(Augmentation([MixUp(probability=1.0, alpha=1.0)])):
        for index, image, shares in zip(batch.indices.tolist(), batch.inputs, batch.targets, strict=True):
            assert shares.sum() == pytest.approx(1.0)
            weight = shares[index % CLASSES]
            assert image.min() == image.max()
            others = [
                other
                for other in range(COUNT)
                if other % CLASSES != index % CLASSES and shares[other % CLASSES] == pytest.approx(1 - weight)
                and image.flat[0] == pytest.approx(weight * index + (1 - weight) * other, abs=1e-3)
            ]  # fmt: skip
            is_own_class = weight == pytest.approx(1.0)
            assert others or is_own_class
            partners |= set(others)
    assert len(partners) > 20


def test_cutmix_pastes_a_rectangle_and_shares_by_area() -> None:
    sizes = set()
    for batch in batches(Augmentation([CutMix(probability=1.0)])):
        for index, image, shares in zip(batch.indices.tolist(), batch.inputs, batch.targets, strict=True):
            foreign = image[0] != index
            rows, columns = np.nonzero(foreign)
            if len(rows):
                box = foreign[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
                assert box.all()
                other = int(image[0][foreign][0])
                expected = np.zeros(CLASSES)
                expected[index % CLASSES] += 1 - box.size / 80
                expected[other % CLASSES] += box.size / 80
                np.testing.assert_allclose(shares, expected, atol=1e-6)
                sizes.add(box.shape)
    assert len(sizes) > 15


@pytest.mark.parametrize(
    "mixtures", [[MixUp()], [CutMix()], [MixUp(), CutMix(), Flip()]], ids=["mixup", "cutmix", "all"]
)
def test_any_number_of_shards_gives_the_same_samples(mixtures: list) -> None:
    augmentation = Augmentation(mixtures)
    whole = by_sample(batches(augmentation))
    halves = [batches(augmentation, num_shards=2, shards=range(rank, rank + 1)) for rank in (0, 1)]
    assert by_sample(halves[0] + halves[1]) == whole
    assert len(whole) == COUNT


def test_contiguous_shards_find_partners_in_their_own_block() -> None:
    augmentation = Augmentation([MixUp(probability=1.0, alpha=2.0)])
    found = batches(augmentation, num_shards=2, shards=range(1, 2), partition="contiguous")
    assert min(batch.inputs.min() for batch in found) >= 30


def test_bytes_stay_bytes_before_normalisation() -> None:
    source, augmentation = one_value_per_sample(np.uint8), Augmentation([MixUp(probability=1.0)])
    assert all(np.array_equal(batch.inputs, np.rint(batch.inputs)) for batch in batches(augmentation, source))


@pytest.mark.parametrize("num_classes", [1, 4])
def test_masks_are_cut_or_blended_with_their_images(num_classes: int) -> None:
    source = ShapesSource((3, 16, 16), 30, num_classes=num_classes)
    cut = batches(Augmentation([CutMix(probability=1.0)]), source)[0]
    plain = batches(Augmentation([CutMix(probability=0.0)]), source)[0]
    assert (cut.targets.shape, cut.targets.dtype) == (plain.targets.shape, plain.targets.dtype)
    moved = (cut.inputs != plain.inputs).any(axis=1)
    assert not ((cut.targets.reshape(moved.shape) != plain.targets.reshape(moved.shape)) & ~moved).any()
    mixed = batches(Augmentation([MixUp(probability=1.0, alpha=1.0)]), source)[0]
    assert mixed.targets.shape == (20, num_classes, 16, 16)
    assert ((mixed.targets > 0.01) & (mixed.targets < 0.99)).any()
    if num_classes > 1:
        np.testing.assert_allclose(mixed.targets.sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_weights_have_mean_and_variance_of_their_distribution(alpha: float) -> None:
    weights = beta(Draw(7, np.arange(20_000)), alpha, 1, 2)
    assert weights.mean() == pytest.approx(0.5, abs=0.01)
    assert weights.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_mixtures_need_data_to_take_partners_from() -> None:
    with pytest.raises(UsageError, match="give a pool"):
        Augmentation([MixUp()]).apply((np.zeros((1, 1, 4, 4)), np.zeros(1, np.int64)), np.arange(1), 0, 0)

import numpy as np
import pytest

from ringlet.data import Augmentation, BatchLoader
from ringlet.data.source import ArraySource
from ringlet.errors import ConfigError


def images(count: int = 40, channels: int = 3, size: int = 8) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 256, (count, channels, size, size), dtype=np.uint8)


def apply(augmentation: Augmentation, inputs: np.ndarray, seed: int = 0, epoch: int = 0) -> np.ndarray:
    indices = np.arange(len(inputs))
    return augmentation.apply((inputs.copy(), indices), indices, seed, epoch)[0]


def test_a_flip_mirrors_columns_and_leaves_rows_and_channels() -> None:
    values = images()
    np.testing.assert_array_equal(apply(Augmentation(flip_probability=1.0), values), values[:, :, :, ::-1])


def test_a_flip_of_probability_one_half_changes_about_half_the_images() -> None:
    values = images(400)
    changed = (apply(Augmentation(flip_probability=0.5), values) != values).any(axis=(1, 2, 3))
    assert 150 < changed.sum() < 250


def test_a_crop_keeps_one_window_and_never_mixes_channels() -> None:
    values = np.zeros((30, 3, 8, 8), dtype=np.uint8) + np.array([10, 20, 30], dtype=np.uint8).reshape(1, 3, 1, 1)
    result = apply(Augmentation(crop_size=5, crop_probability=1.0), values)
    for channel, level in enumerate((10, 20, 30)):
        assert set(np.unique(result[:, channel])) == {0, level}
        assert ((result[:, channel] == level).sum(axis=(1, 2)) == 25).all()


def test_a_crop_moves_a_true_window_of_the_image() -> None:
    values = images(20)
    result = apply(Augmentation(crop_size=5, crop_probability=1.0), values)
    for before, after in zip(values, result, strict=True):
        rows, columns = np.nonzero(after[0])
        window = after[:, rows.min() : rows.min() + 5, columns.min() : columns.min() + 5]
        places = [(y, x) for y in range(4) for x in range(4) if (before[:, y : y + 5, x : x + 5] == window).all()]
        assert places


def test_a_shift_moves_the_whole_image_and_pads_with_zeros() -> None:
    values = images(50)
    result = apply(Augmentation(shift_size=2), values)
    seen = set()
    for before, after in zip(values, result, strict=True):
        padded = np.pad(before, ((0, 0), (2, 2), (2, 2)))
        places = [(y, x) for y in range(5) for x in range(5) if (padded[:, y : y + 8, x : x + 8] == after).all()]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 10


def test_masks_follow_their_images() -> None:
    values = images(30, channels=1)
    masks = values.astype(np.float32)
    everything = Augmentation(flip_probability=0.5, crop_size=6, crop_probability=0.5, shift_size=2)
    indices = np.arange(30)
    changed, targets = everything.apply((values.copy(), masks.copy()), indices, 3, 1)
    assert (changed != values).any()
    np.testing.assert_array_equal(changed, targets)


def test_a_sample_changes_alike_in_any_batch_and_on_any_rank() -> None:
    source = ArraySource(images(24), np.arange(24, dtype=np.int64), 24)
    everything = Augmentation(flip_probability=0.5, crop_size=5, crop_probability=0.5, shift_size=3)

    def by_index(global_batch_size: int, size: int, prefetch: int) -> dict[int, bytes]:
        result: dict[int, bytes] = {}
        for rank in range(size):
            loader = BatchLoader(
                source,
                global_batch_size=global_batch_size,
                seed=5,
                augmentation=everything,
                num_shards=size,
                shards=range(rank, rank + 1),
                prefetch=prefetch,
            )
            for batch in loader.epoch(3):
                result |= {int(i): x.tobytes() for i, x in zip(batch.indices, batch.inputs, strict=True)}
        return result

    assert by_index(24, 1, 0) == by_index(7, 3, 2) == by_index(1, 1, 1)


def test_epochs_and_seeds_give_other_changes() -> None:
    values = images()
    everything = Augmentation(flip_probability=0.5, shift_size=2)
    results = [apply(everything, values, seed, epoch).tobytes() for seed in (0, 1) for epoch in (0, 1)]
    assert len(set(results)) == 4


def test_validation_images_are_not_augmented_by_a_loader_without_augmentation() -> None:
    source = ArraySource(images(10), np.arange(10, dtype=np.int64), 10)
    for epoch in range(3):
        batch = next(BatchLoader(source, global_batch_size=10, shuffle=False).epoch(epoch))
        np.testing.assert_array_equal(batch.inputs, images(10))


def test_augmentation_does_not_change_what_the_source_stores() -> None:
    stored = images(10)
    source = ArraySource(stored, np.arange(10, dtype=np.int64), 10)
    loader = BatchLoader(source, global_batch_size=10, augmentation=Augmentation(1.0, 4, 1.0, 2, 1.0))
    next(loader.epoch(0))
    np.testing.assert_array_equal(stored, images(10))


@pytest.mark.parametrize(
    "options",
    [
        {"flip_probability": 1.5},
        {"flip_probability": float("nan")},
        {"crop_size": -1},
        {"crop_probability": 0.5},
        {"shift_size": -2},
    ],
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Augmentation(**options)


@pytest.mark.parametrize("augmentation", [Augmentation(crop_size=9, crop_probability=0.5), Augmentation(shift_size=8)])
def test_a_window_that_does_not_fit_is_refused_before_training(augmentation: Augmentation) -> None:
    source = ArraySource(images(4), np.arange(4, dtype=np.int64), 4)
    with pytest.raises(ConfigError, match="8x8"):
        BatchLoader(source, global_batch_size=2, augmentation=augmentation)


def test_plain_features_cannot_be_flipped() -> None:
    source = ArraySource(np.zeros((4, 6), np.float32), np.zeros(4, dtype=np.int64), 1)
    with pytest.raises(ConfigError, match="expected images"):
        BatchLoader(source, global_batch_size=2, augmentation=Augmentation(0.5))

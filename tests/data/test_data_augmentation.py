import numpy as np
import pytest

from ringlet.data import Augmentation, BatchLoader
from ringlet.data.augmentation import Crop, Flip, Jitter, Rotate, Shift, rotation
from ringlet.data.source import ArraySource
from ringlet.errors import ConfigError


def augmentation(
    flip_probability: float = 0.0,
    crop_size: int = 0,
    crop_probability: float = 0.0,
    shift_size: int = 0,
    shift_probability: float = 1.0,
    rotate_degrees: float = 0.0,
    rotate_probability: float = 1.0,
    jitter_strength: float = 0.0,
    jitter_probability: float = 1.0,
) -> Augmentation:
    """All that is not zero."""
    transforms = [
        Flip(probability=flip_probability) if flip_probability else None,
        Crop(size=crop_size, probability=crop_probability) if crop_size else None,
        Shift(size=shift_size, probability=shift_probability) if shift_size else None,
        Rotate(degrees=rotate_degrees, probability=rotate_probability) if rotate_degrees else None,
        Jitter(strength=jitter_strength, probability=jitter_probability) if jitter_strength else None,
    ]
    return Augmentation([transform for transform in transforms if transform is not None])


def images(count: int = 40, channels: int = 3, size: int = 8) -> np.ndarray:
    return np.random.default_rng(1).integers(1, 256, (count, channels, size, size), dtype=np.uint8)


def apply(augmentation: Augmentation, inputs: np.ndarray, seed: int = 0, epoch: int = 0) -> np.ndarray:
    indices = np.arange(len(inputs))
    return augmentation.apply((inputs.copy(), indices), indices, seed, epoch)[0]


def test_a_flip_mirrors_columns_and_leaves_rows_and_channels() -> None:
    values = images()
    np.testing.assert_array_equal(apply(augmentation(flip_probability=1.0), values), values[:, :, :, ::-1])


def test_a_flip_of_probability_one_half_changes_about_half_the_images() -> None:
    values = images(400)
    changed = (apply(augmentation(flip_probability=0.5), values) != values).any(axis=(1, 2, 3))
    assert 150 < changed.sum() < 250


def test_a_crop_keeps_one_window_and_never_mixes_channels() -> None:
    values = np.zeros((30, 3, 8, 8), dtype=np.uint8) + np.array([10, 20, 30], dtype=np.uint8).reshape(1, 3, 1, 1)
    result = apply(augmentation(crop_size=5, crop_probability=1.0), values)
    for channel, level in enumerate((10, 20, 30)):
        assert set(np.unique(result[:, channel])) == {0, level}
        assert ((result[:, channel] == level).sum(axis=(1, 2)) == 25).all()


def test_a_crop_moves_a_true_window_of_the_image() -> None:
    values = images(20)
    result = apply(augmentation(crop_size=5, crop_probability=1.0), values)
    for before, after in zip(values, result, strict=True):
        rows, columns = np.nonzero(after[0])
        window = after[:, rows.min() : rows.min() + 5, columns.min() : columns.min() + 5]
        places = [(y, x) for y in range(4) for x in range(4) if (before[:, y : y + 5, x : x + 5] == window).all()]
        assert places


def test_a_shift_moves_the_whole_image_and_pads_with_zeros() -> None:
    values = images(50)
    result = apply(augmentation(shift_size=2), values)
    seen = set()
    for before, after in zip(values, result, strict=True):
        padded = np.pad(before, ((0, 0), (2, 2), (2, 2)))
        places = [(y, x) for y in range(5) for x in range(5) if (padded[:, y : y + 8, x : x + 8] == after).all()]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 10


@pytest.mark.parametrize("kind", ["mask", "classes"])
def test_masks_follow_their_images(kind: str) -> None:
    """The image shows the number of each pixel's own place: its mask must show the same numbers at the same places."""
    numbers = np.arange(1, 65, dtype=np.float32).reshape(1, 1, 8, 8).repeat(30, axis=0)
    targets = numbers.copy() if kind == "mask" else numbers[:, 0].astype(np.int64)
    everything = augmentation(flip_probability=0.5, crop_size=6, crop_probability=0.5, shift_size=2)
    changed, followed = everything.apply((numbers.copy(), targets.copy()), np.arange(30), 3, 1)
    assert (changed != numbers).any()
    assert (followed.shape, followed.dtype) == (targets.shape, targets.dtype)
    np.testing.assert_array_equal(followed.reshape(changed.shape), changed)


@pytest.mark.parametrize("kind", ["mask", "classes"])
def test_turned_masks_cover_the_same_objects_as_turned_images(kind: str) -> None:
    """A bright disc away from the centre moves about; wherever it goes, its mask lies on it."""
    y, x = np.mgrid[:64, :64]
    disc = ((y - 20) ** 2 + (x - 30) ** 2 < 100).astype(np.uint8)
    inputs = np.repeat(disc[None, None] * 200, 20, axis=0)
    targets = inputs.astype(np.float32) / 200 if kind == "mask" else (inputs[:, 0] // 100).astype(np.int64)
    everything = augmentation(flip_probability=0.5, shift_size=9, rotate_degrees=90)
    turned, followed = everything.apply((inputs.copy(), targets.copy()), np.arange(20), 0, 0)
    assert len({image.tobytes() for image in turned}) == 20
    assert set(np.unique(followed)) == set(np.unique(targets))
    assert ((turned >= 100) == (followed.reshape(turned.shape) > 0)).mean() > 0.995


@pytest.mark.parametrize(
    ("angle", "expected"),
    [(0.0, lambda x: x), (90.0, lambda x: np.rot90(x, 1, (1, 2))), (180.0, lambda x: x[:, ::-1, ::-1])],
)
def test_quarter_turns_are_exact(angle: float, expected) -> None:
    image = images(1)[0]
    view = rotation((8, 8), float(np.deg2rad(angle)))
    np.testing.assert_array_equal(view.smooth(image), expected(image))
    np.testing.assert_array_equal(view.nearest(image), expected(image))


def test_a_turn_leaves_zeros_in_the_corners_and_the_centre_in_place() -> None:
    image = np.full((1, 9, 9), 80, np.uint8)
    image[0, 4, 4] = 200
    turned = rotation((9, 9), float(np.deg2rad(45))).nearest(image)
    assert turned[0, 4, 4] == 200
    assert [turned[0, y, x] for y in (0, 8) for x in (0, 8)] == [0, 0, 0, 0]


def test_a_turn_of_an_oblong_image_keeps_its_shape() -> None:
    image = np.random.default_rng(0).random((2, 5, 12), dtype=np.float32)
    turned = rotation((5, 12), float(np.deg2rad(180))).smooth(image)
    np.testing.assert_allclose(turned, image[:, ::-1, ::-1], atol=1e-5)


def test_angles_lie_within_the_limit_and_a_share_is_left_alone() -> None:
    y, x = np.mgrid[:65, :65]
    line = ((np.abs(y - 32) <= 1) & (x > 32)).astype(np.uint8)
    inputs = np.repeat(line[None, None] * 255, 200, axis=0)
    turned = apply(augmentation(rotate_degrees=20, rotate_probability=0.5), inputs)
    assert 70 < (turned != inputs).any(axis=(1, 2, 3)).sum() < 130
    rows = [np.average(y[:, 60], weights=image[0, :, 60] + 1e-9) - 32 for image in turned]
    angles = np.rad2deg(np.arctan2(rows, 28))
    assert 15 < np.abs(angles).max() < 21
    assert angles.min() < 0 < angles.max()


def test_a_sample_changes_alike_in_any_batch_and_on_any_rank() -> None:
    source = ArraySource(images(24), np.arange(24, dtype=np.int64), 24)
    everything = augmentation(
        0.5, crop_size=5, crop_probability=0.5, shift_size=3, rotate_degrees=30, jitter_strength=0.5
    )

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


@pytest.mark.parametrize("target_shape", [(), (1, 8, 8), (8, 8)])
def test_a_batch_without_samples_stays_empty(target_shape: tuple[int, ...]) -> None:
    everything = augmentation(0.5, 5, 0.5, 3, 0.5, rotate_degrees=30, jitter_strength=0.5)
    samples = np.empty((0, 3, 8, 8), np.uint8), np.empty((0, *target_shape), np.float32)
    changed = everything.apply(samples, np.empty(0, np.int64), 0, 0)
    assert [part.shape for part in changed] == [(0, 3, 8, 8), (0, *target_shape)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_jitter_changes_the_light_and_nothing_else(dtype: type) -> None:
    values = (images(200, size=16) // 2 + 60).astype(dtype)
    masks = np.arange(200 * 256, dtype=np.float32).reshape(200, 1, 16, 16)
    jitter = augmentation(jitter_strength=0.3, jitter_probability=0.5)
    changed, same = jitter.apply((values.copy(), masks.copy()), np.arange(200), 0, 0)
    np.testing.assert_array_equal(same, masks)
    assert changed.dtype == dtype
    assert 70 < (changed != values).any(axis=(1, 2, 3)).sum() < 130
    before, after = values.astype(np.float64), changed.astype(np.float64)
    for one, other in zip(before.reshape(600, -1), after.reshape(600, -1), strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.999
        assert 0.65 < other.std() / one.std() < 1.35
        assert abs(other.mean() - one.mean()) < 0.32 * one.std() + 1
    channels = (after - before).mean(axis=(2, 3))
    assert channels[np.abs(channels).sum(axis=1) > 0].std(axis=1).min() > 0  # each channel for itself


def test_epochs_and_seeds_give_other_changes() -> None:
    values = images()
    everything = augmentation(flip_probability=0.5, shift_size=2)
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
    loader = BatchLoader(source, global_batch_size=10, augmentation=augmentation(1.0, 4, 1.0, 2, 1.0, 30, 1.0))
    next(loader.epoch(0))
    np.testing.assert_array_equal(stored, images(10))


@pytest.mark.parametrize(
    "options",
    [
        {"flip_probability": 1.5},
        {"flip_probability": float("nan")},
        {"crop_size": -1},
        {"crop_size": 3, "crop_probability": 1.5},
        {"shift_size": -2},
        {"rotate_degrees": -1},
        {"rotate_degrees": 181},
        {"rotate_degrees": float("nan")},
        {"rotate_degrees": 5, "rotate_probability": 2},
        {"jitter_strength": -0.1},
        {"jitter_strength": 1.1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        augmentation(**options)


@pytest.mark.parametrize("given", [augmentation(crop_size=9, crop_probability=0.5), augmentation(shift_size=8)])
def test_a_window_that_does_not_fit_is_refused_before_training(given: Augmentation) -> None:
    source = ArraySource(images(4), np.arange(4, dtype=np.int64), 4)
    with pytest.raises(ConfigError, match="8x8"):
        BatchLoader(source, global_batch_size=2, augmentation=given)


def test_plain_features_cannot_be_flipped() -> None:
    source = ArraySource(np.zeros((4, 6), np.float32), np.zeros(4, dtype=np.int64), 1)
    with pytest.raises(ConfigError, match="expected images"):
        BatchLoader(source, global_batch_size=2, augmentation=augmentation(0.5))

"""Zoom, windows, colours, blur and holes against formulas of PyTorch, the standard library or NumPy, and masks."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from torch.nn import functional

from ringlet.data.augmentation import (
    Augmentation,
    Blur,
    Change,
    Colour,
    Erase,
    ResizedCrop,
    VerticalFlip,
    Zoom,
)
from ringlet.data.augmentation.light import colour_matrix
from ringlet.data.augmentation.warp import window, zoom
from ringlet.errors import ConfigError

RNG = np.random.default_rng(5)
GEOMETRY = (VerticalFlip(probability=1.0), Zoom(probability=1.0, strength=0.5), ResizedCrop(probability=1.0))
LIGHT = (Colour(probability=1.0), Blur(probability=1.0), Erase(probability=1.0))


def images(count: int = 12, size: tuple[int, int] = (24, 20)) -> np.ndarray:
    return RNG.integers(0, 256, (count, 3, *size), dtype=np.uint8)


def changed(change: Change, inputs: np.ndarray, targets: np.ndarray | None = None, epoch: int = 0) -> tuple:
    indices = np.arange(len(inputs))
    samples = inputs.copy(), indices if targets is None else targets.copy()
    return Augmentation([change]).apply(samples, indices, 3, epoch)


def test_a_vertical_flip_mirrors_rows() -> None:
    values = images()
    np.testing.assert_array_equal(changed(VerticalFlip(probability=1.0), values)[0], values[:, :, ::-1])


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_a_zoom_is_that_of_pytorchs_grid(factor: float) -> None:
    image = RNG.random((3, 15, 12)).astype(np.float32)
    matrix = torch.tensor([[[1 / factor, 0, 0], [0, 1 / factor, 0]]], dtype=torch.float64)
    batch = torch.tensor(image, dtype=torch.float64)[None]
    grid = functional.affine_grid(matrix, list(batch.shape), align_corners=True)
    expected = functional.grid_sample(batch, grid, align_corners=True, padding_mode="zeros")[0]
    np.testing.assert_allclose(zoom((15, 12), factor).smooth(image), expected, atol=1e-5)


@pytest.mark.parametrize("box", [(0, 0, 16, 12), (3, 2, 7, 9), (15, 11, 1, 1), (4, 0, 12, 3)])
def test_a_resized_window_is_that_of_pytorchs_interpolation(box: tuple[int, int, int, int]) -> None:
    top, left, height, width = box
    image = RNG.random((2, 16, 12)).astype(np.float32)
    cut = torch.tensor(image[:, top : top + height, left : left + width])[None]
    smooth = functional.interpolate(cut, (16, 12), mode="bilinear", align_corners=False)[0]
    nearest = functional.interpolate(cut, (16, 12), mode="nearest-exact")[0]
    np.testing.assert_allclose(window((16, 12), box).smooth(image), smooth, atol=1e-6)
    np.testing.assert_array_equal(window((16, 12), box).nearest(image), nearest)


def test_windows_have_the_area_and_the_sides_that_were_asked_for() -> None:
    """The image shows its own rows and columns, so that a window tells its size."""
    rows, columns = np.mgrid[:40, :40].astype(np.float32)
    inputs = np.repeat(np.stack([rows, columns])[None], 200, axis=0)
    result = changed(ResizedCrop(probability=1.0, scale=0.25, ratio=1.5), inputs)[0]
    heights, widths = (result[:, axis].max(axis=(1, 2)) - result[:, axis].min(axis=(1, 2)) + 1 for axis in (0, 1))
    areas = heights * widths / 1600
    assert 0.2 < areas.min() < 0.35
    assert areas.max() > 0.9
    assert 1.3 < (heights / widths).max() < 1.65
    assert len({tuple(pair) for pair in np.stack([heights, widths], axis=1).tolist()}) > 100


@pytest.mark.parametrize("kind", ["mask", "classes"])
@pytest.mark.parametrize("change", GEOMETRY, ids=lambda change: change.name)
def test_masks_move_with_their_images_and_get_no_new_values(change: Change, kind: str) -> None:
    y, x = np.mgrid[:64, :64]
    disc = ((y - 24) ** 2 + (x - 30) ** 2 < 150).astype(np.uint8)
    inputs = np.repeat(disc[None, None] * 200, 20, axis=0)
    targets = inputs.astype(np.float32) / 200 if kind == "mask" else (inputs[:, 0] // 100).astype(np.int64)
    moved, followed = changed(change, inputs, targets)
    assert (moved != inputs).any()
    assert (followed.shape, followed.dtype) == (targets.shape, targets.dtype)
    assert set(np.unique(followed)) == set(np.unique(targets))
    assert ((moved >= 100) == (followed.reshape(moved.shape) > 0)).mean() > 0.99


@pytest.mark.parametrize("change", LIGHT, ids=lambda change: change.name)
def test_masks_stay_where_only_light_changes(change: Change) -> None:
    inputs, targets = images(), RNG.integers(0, 4, (12, 24, 20))
    result, followed = changed(change, inputs, targets)
    assert (result != inputs).any()
    np.testing.assert_array_equal(followed, targets)


@pytest.mark.parametrize(("degrees", "factor"), [(0, 1.0), (30, 1.0), (-70, 0.4), (10, 1.9)])
def test_colours_turn_in_the_space_of_colorsys(degrees: float, factor: float) -> None:
    matrix = colour_matrix(np.deg2rad(degrees), factor)
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    for red, green, blue in RNG.random((20, 3)) * 0.3 + 0.35:
        y, i, q = colorsys.rgb_to_yiq(red, green, blue)
        turned = factor * (cosine * i - sine * q), factor * (sine * i + cosine * q)
        found = colorsys.rgb_to_yiq(*(matrix @ np.array([red, green, blue])))
        assert found == pytest.approx((y, *turned), abs=1e-6)


def test_colours_change_within_their_limits_and_greys_not_at_all() -> None:
    grey = np.repeat(RNG.integers(0, 256, (8, 1, 6, 6), dtype=np.uint8), 3, axis=1)
    np.testing.assert_allclose(changed(Colour(probability=1.0), grey)[0].astype(int), grey, atol=1)
    values = np.full((50, 3, 2, 2), 120, np.uint8)
    values[:, 0] = 160
    only_saturation = changed(Colour(probability=1.0, hue=0, saturation=0.5), values)[0].astype(int)
    spread = only_saturation[:, 0, 0, 0] - only_saturation[:, 1, 0, 0]
    assert 19 <= spread.min() < 30
    assert 50 < spread.max() <= 61


def test_colours_need_three_channels() -> None:
    with pytest.raises(ConfigError, match="1 channels, expected red, green and blue"):
        Augmentation([Colour()]).check_shape((1, 8, 8))


@pytest.mark.parametrize("size", [(24, 20), (3, 5)])
def test_a_blur_is_the_convolution_with_a_gaussian(size: tuple[int, int]) -> None:
    inputs = RNG.random((1, 2, *size)).astype(np.float32)
    result = changed(Blur(probability=1.0, sigma=0.1), inputs)[0]  # from 0.1 to 0.1
    np.testing.assert_allclose(result, inputs, atol=1e-6)
    from ringlet.data.augmentation.light import _blurred

    values = torch.tensor(inputs[0], dtype=torch.float64)[:, None]
    expected, found = values, inputs[0]
    for axis in (1, 2):
        radius = min(5, size[axis - 1] - 1)  # of sigma 1.5
        weights = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / 1.5) ** 2)
        kernel = (weights / weights.sum()).reshape((1, 1, -1, 1) if axis == 1 else (1, 1, 1, -1))
        padding = (0, 0, radius, radius) if axis == 1 else (radius, radius, 0, 0)
        expected = functional.conv2d(functional.pad(expected, padding, mode="reflect"), kernel)
        found = _blurred(found, 1.5, axis)
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-5)


def test_a_hole_is_one_rectangle_of_the_mean() -> None:
    inputs = images(60, (30, 30))
    result = changed(Erase(probability=1.0, area=0.3), inputs)[0]
    shares = []
    for before, after in zip(inputs, result, strict=True):
        rows, columns = np.nonzero((before != after).any(axis=0))
        box = (slice(None), slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
        means = np.rint(before.mean(axis=(1, 2)))
        np.testing.assert_array_equal(after[box], np.broadcast_to(means[:, None, None], after[box].shape))
        shares.append(after[box][0].size / 900)
    assert 0.01 < min(shares) < 0.08
    assert 0.22 < max(shares) <= 0.33


@pytest.mark.parametrize("change", [*GEOMETRY, *LIGHT], ids=lambda change: change.name)
def test_a_sample_changes_alike_in_any_batch_and_otherwise_in_each_epoch(change: Change) -> None:
    values = images(30)
    everything = Augmentation([change.replace(probability=0.7)])
    whole = everything.apply((values.copy(), np.arange(30)), np.arange(30), 1, 2)[0]
    some = np.array([17, 3, 29])
    np.testing.assert_array_equal(everything.apply((values[some], some), some, 1, 2)[0], whole[some])
    if change.name != "vertical_flip":
        assert (everything.apply((values.copy(), np.arange(30)), np.arange(30), 1, 3)[0] != whole).any()
    assert 10 < sum((before != after).any() for before, after in zip(values, whole, strict=True)) < 29

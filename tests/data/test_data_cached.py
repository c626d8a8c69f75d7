"""Decoded files are kept where they fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from ringlet.data import load_dataset
from ringlet.data.source import CachedSource, cached

IMAGE_BYTES = 6


def test_every_sample_is_read_once_and_given_in_the_order_asked_for(recording_source) -> None:
    inner = recording_source(10)
    source = CachedSource(inner)
    for asked in ([3, 1], [1, 7, 3, 1], [3, 3, 3], [9, 8, 7]):
        inputs, targets = source.read(np.array(asked))
        np.testing.assert_array_equal(targets, asked)
        np.testing.assert_array_equal(inputs, recording_source(10).read(np.array(asked))[0])
    assert sorted(inner.read_indices) == [1, 3, 7, 8, 9]


def test_no_sample_may_be_asked_for(recording_source) -> None:
    inputs, targets = CachedSource(recording_source(4)).read(np.empty(0, np.int64))
    assert (inputs.shape, targets.shape) == ((0, 1, 2, 3), (0,))


def test_what_a_reader_changes_is_not_cached(recording_source) -> None:
    source = CachedSource(recording_source(4))
    source.read(np.array([2]))[0][...] = 99
    np.testing.assert_array_equal(source.read(np.array([2]))[0], recording_source(4).read(np.array([2]))[0])


def test_many_threads_get_what_one_gets(recording_source) -> None:
    source, expected = CachedSource(recording_source(64)), recording_source(64).read(np.arange(64))
    with ThreadPoolExecutor(8) as pool:
        asked = [np.random.default_rng(seed).permutation(64) for seed in range(64)]
        for indices, (inputs, targets) in zip(asked, pool.map(source.read, asked), strict=True):
            np.testing.assert_array_equal(inputs, expected[0][indices])
            np.testing.assert_array_equal(targets, indices)


def test_a_source_is_cached_only_if_all_of_it_fits(recording_source) -> None:
    source = recording_source(10)
    assert isinstance(cached(source, IMAGE_BYTES, max_bytes=10 * IMAGE_BYTES), CachedSource)
    assert cached(source, IMAGE_BYTES, max_bytes=10 * IMAGE_BYTES - 1) is source


def test_files_are_decoded_once(tmp_path: Path, save_image) -> None:
    for name in ("a", "b"):
        save_image(tmp_path / "images" / f"{name}.png", np.full((8, 8, 3), 7, np.uint8))
        save_image(tmp_path / "masks" / f"{name}.png", np.tri(8, dtype=np.uint8))
    source = load_dataset("masks", path=tmp_path).train
    before = source.read(np.arange(2))
    for path in tmp_path.rglob("*.png"):
        path.unlink()
    for ours, theirs in zip(source.read(np.arange(2)), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)

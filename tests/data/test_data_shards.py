from pathlib import Path

import numpy as np
import pytest

from ringlet.data import load_dataset
from ringlet.errors import DataError


@pytest.fixture(params=[np.savez, np.savez_compressed])
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Three training shards of 5, 3 and 4 images, one validation shard; value = 10 * shard + row."""
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    for number, count in enumerate((5, 3, 4)):
        x = (
            np.zeros((count, 3, 6, 6), dtype=np.uint8)
            + (10 * number + np.arange(count, dtype=np.uint8))[:, None, None, None]
        )
        request.param(tmp_path / "train" / f"s{number}.npz", x=x, y=np.arange(count) + number)
    request.param(tmp_path / "val" / "s.npz", x=x, y=np.zeros(4, dtype=np.int64))
    return tmp_path


def test_shards_are_joined_in_the_order_of_their_names(shards: Path) -> None:
    dataset = load_dataset("imagenet", path=shards)
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (12, 4, None)
    inputs, labels = dataset.train.read(np.array([11, 0, 5, 4, 8]))
    assert inputs[:, 0, 0, 0].tolist() == [23, 0, 10, 4, 20]
    assert labels.tolist() == [5, 0, 1, 4, 2]
    assert dataset.num_classes == 6
    assert len(dataset.normalization.mean) == 3


def test_only_the_shards_asked_for_are_read(shards: Path) -> None:
    source = load_dataset("imagenet", path=shards).train
    (shards / "train" / "s0.npz").unlink()
    assert source.read(np.array([6]))[1].tolist() == [2]
    with pytest.raises(DataError, match=r"s0\.npz"):
        source.read(np.array([0]))


def test_many_shards_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    for number in range(12):
        np.savez_compressed(tmp_path / f"{number:02}.npz", x=np.full((1, 1, 4, 4), number, np.uint8), y=[0])
    source = load_dataset("imagenet", path=tmp_path).train
    assert source.read(np.arange(12))[0][:, 0, 0, 0].tolist() == list(range(12))
    assert len(source._open) <= 4


def test_labels_that_start_at_one_are_shifted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 6, 6, 3), np.uint8), y=[1, 2, 3])
    dataset = load_dataset("imagenet", path=tmp_path, num_classes=3)
    assert dataset.train.read(np.arange(3))[1].tolist() == [0, 1, 2]
    assert dataset.input_shape == (3, 6, 6)


def test_one_hot_targets_are_understood(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 3, 4, 4), np.float32), y=np.eye(3))
    dataset = load_dataset("imagenet", path=tmp_path)
    assert dataset.train.read(np.arange(3))[1].tolist() == [0, 1, 2]
    assert dataset.normalization.scale == 1.0


def test_shards_of_different_shape_are_refused(shards: Path) -> None:
    np.savez(shards / "train" / "s9.npz", x=np.zeros((2, 3, 5, 5), np.uint8), y=[0, 1])
    with pytest.raises(DataError, match=r"s9.npz: images of shape \(3, 5, 5\)"):
        load_dataset("imagenet", path=shards)


def test_a_label_out_of_range_names_the_shard(shards: Path) -> None:
    with pytest.raises(DataError, match=r"s0\.npz: label 4 at index 4"):
        load_dataset("imagenet", path=shards, num_classes=4)


def test_a_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no npz shards"):
        load_dataset("imagenet", path=tmp_path)

import gzip
from pathlib import Path

import numpy as np
import pytest

from ringlet.data import load_dataset
from ringlet.data.binary_files import read_idx
from ringlet.errors import DataError


def test_real_mnist_is_read_whole(real_data: Path) -> None:
    dataset = load_dataset("mnist", path=real_data / "mnist")
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    assert dataset.input_shape == (1, 28, 28)
    inputs, labels = dataset.train.read(np.arange(10))
    assert labels.tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert inputs.dtype == np.uint8
    everything = dataset.train.read(np.arange(60_000))
    assert abs(everything[0].mean() / 255 - 0.1307) < 1e-4
    assert np.bincount(everything[1]).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_plain_files_are_memory_mapped_and_gzip_gives_the_same(idx_folder: Path) -> None:
    path = idx_folder / "train-images-idx3-ubyte"
    packed = idx_folder / "other.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain = read_idx(path)
    assert not plain.flags.owndata
    assert not plain.flags.writeable
    np.testing.assert_array_equal(plain, read_idx(packed))


def test_a_folder_gives_both_splits(idx_folder: Path) -> None:
    dataset = load_dataset(f"idx:{idx_folder}")
    assert (len(dataset.train), len(dataset.test), dataset.num_classes) == (20, 6, 10)
    inputs, labels = dataset.test.read(np.array([5, 1]))
    assert inputs.shape == (2, 1, 5, 4)
    assert inputs[0, 0, 0].tolist() == [100, 101, 102, 103]
    assert labels.tolist() == [5, 1]


@pytest.mark.parametrize(
    "style", ["train-{}.idx{}-ubyte", "emnist-letters-train-{}-idx{}-ubyte", "TRAIN-{}-idx{}-ubyte"]
)
def test_variants_of_the_file_names_are_found(style: str, idx_folder: Path) -> None:
    for kind, dims in (("images", 3), ("labels", 1)):
        (idx_folder / f"train-{kind}-idx{dims}-ubyte").rename(idx_folder / style.format(kind, dims))
    assert len(load_dataset("mnist", path=idx_folder).train) == 20


def test_the_raw_subfolder_of_other_tools_is_found(tmp_path: Path, idx_folder: Path) -> None:
    raw = tmp_path / "elsewhere" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for path in idx_folder.glob("t*-ubyte*"):
        path.rename(raw / path.name)
    assert len(load_dataset("mnist", path=tmp_path / "elsewhere").train) == 20


@pytest.mark.parametrize(
    ("code", "dtype"), [(0x08, "u1"), (0x09, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")]
)
def test_all_types_of_the_format_are_read(code: int, dtype: str, tmp_path: Path, make_idx) -> None:
    values = np.arange(12).astype(dtype).reshape(3, 4)
    (tmp_path / "x").write_bytes(make_idx(values, code))
    np.testing.assert_array_equal(read_idx(tmp_path / "x"), values)


def test_floating_images_are_not_scaled_like_bytes(idx_folder: Path, make_idx) -> None:
    values = np.linspace(0, 1, 400).astype(">f4").reshape(20, 5, 4)
    (idx_folder / "train-images-idx3-ubyte").write_bytes(make_idx(values, 0x0D))
    for path in idx_folder.glob("t10k*"):
        path.unlink()
    dataset = load_dataset("mnist", path=idx_folder)
    assert dataset.normalization.scale == 1.0
    assert dataset.train.read(np.arange(2))[0].dtype == np.float32


def test_a_missing_data_set_says_how_to_fetch_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path))
    with pytest.raises(DataError, match="ringlet datasets fetch mnist"):
        load_dataset("mnist")


def test_a_folder_without_the_files_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        load_dataset("mnist", path=tmp_path)


def test_a_test_path_without_test_files_is_an_error(idx_folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="no test data"):
        load_dataset("mnist", train_path=idx_folder, test_path=empty)


def test_a_label_out_of_range_names_file_and_index(idx_folder: Path, make_idx) -> None:
    labels = np.zeros(20, dtype=np.uint8)
    labels[13] = 255
    (idx_folder / "train-labels-idx1-ubyte").write_bytes(make_idx(labels))
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte: label 255 at index 13: expected 0 … 9"):
        load_dataset("mnist", path=idx_folder)


def test_a_count_mismatch_is_an_error(idx_folder: Path, make_idx) -> None:
    (idx_folder / "train-labels-idx1-ubyte").write_bytes(make_idx(np.zeros(19, dtype=np.uint8)))
    with pytest.raises(DataError, match=r"20 images but .* 19 labels"):
        load_dataset("mnist", path=idx_folder)

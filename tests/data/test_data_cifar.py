from pathlib import Path

import numpy as np
import pytest

from ringlet.data import load_dataset
from ringlet.errors import DataError


def test_the_real_incomplete_folder_works(real_data: Path) -> None:
    dataset = load_dataset("cifar10", path=real_data / "cifar-10-batches-bin")
    assert (len(dataset.train), len(dataset.test)) == (10_000, 10_000)
    assert dataset.input_shape == (3, 32, 32)
    inputs, labels = dataset.train.read(np.arange(10_000))
    assert np.bincount(labels).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert [dataset.class_names[label] for label in labels[:4]] == ["frog", "truck", "truck", "deer"]
    np.testing.assert_allclose(inputs.mean(axis=(0, 2, 3)) / 255, dataset.normalization.mean, atol=0.005)


def test_the_subfolder_of_the_archive_is_found(real_data: Path) -> None:
    assert len(load_dataset("cifar10", path=real_data).train) == 10_000


def test_files_are_joined_in_order(cifar_folder: Path) -> None:
    dataset = load_dataset("cifar10", path=cifar_folder)
    assert len(dataset.train) == 8
    inputs, labels = dataset.train.read(np.array([7, 0, 4, 3]))
    assert labels.tolist() == [4, 0, 1, 3]
    assert inputs[:, 0, 0, 0].tolist() == [31, 0, 1, 30]
    assert inputs.shape == (4, 3, 32, 32)


def test_reading_nothing_gives_empty_arrays_of_the_right_shape(cifar_folder: Path) -> None:
    inputs, labels = load_dataset("cifar10", path=cifar_folder).train.read(np.empty(0, dtype=np.int64))
    assert inputs.shape == (0, 3, 32, 32)
    assert labels.shape == (0,)


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    records = np.zeros((3, 3074), dtype=np.uint8)
    records[:, 0], records[:, 1] = 7, (5, 99, 0)
    records.tofile(tmp_path / "train.bin")
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"name{i}" for i in range(100)) + "\n")
    dataset = load_dataset("cifar100", path=tmp_path)
    assert dataset.train.read(np.arange(3))[1].tolist() == [5, 99, 0]
    assert dataset.num_classes == 100
    assert dataset.class_names[99] == "name99"
    assert dataset.test is None


def test_a_truncated_file_says_expected_and_actual_bytes(cifar_folder: Path) -> None:
    path = cifar_folder / "data_batch_1.bin"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"12,192 bytes, expected a multiple of 3073 \(12,292"):
        load_dataset("cifar10", path=cifar_folder)


def test_a_label_out_of_range_names_the_file_and_record(cifar_folder: Path) -> None:
    path = cifar_folder / "data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[2 * 3073] = 10
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_3.bin: label 10 at index 2"):
        load_dataset("cifar10", path=cifar_folder)


def test_an_empty_file_is_an_error(cifar_folder: Path) -> None:
    (cifar_folder / "data_batch_1.bin").write_bytes(b"")
    with pytest.raises(DataError, match="truncated"):
        load_dataset("cifar10", path=cifar_folder)


def test_a_folder_without_training_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data_batch_1\.bin"):
        load_dataset("cifar10", path=tmp_path)

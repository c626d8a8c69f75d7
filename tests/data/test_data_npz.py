from pathlib import Path

import numpy as np
import pytest

from ringlet.data import load_dataset
from ringlet.data.npz import NpzFile
from ringlet.data.source import weights_of
from ringlet.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 10), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 1, 0, 2], dtype=np.uint8)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "keys",
    [
        ("x", "y"),
        ("images", "labels"),
        ("X", "Y"),
        ("x_train", "y_train"),
        ("train_images", "train_labels"),
        ("data", "targets"),
    ],
)
def test_usual_keys_are_understood(keys: tuple[str, str], save, tmp_path: Path) -> None:
    save(tmp_path / "d.npz", **{keys[0]: IMAGES, keys[1]: LABELS})
    dataset = load_dataset(f"npz:{tmp_path / 'd.npz'}")
    assert (dataset.input_shape, dataset.num_classes, dataset.task) == ((3, 8, 10), 3, "classification")
    inputs, labels = dataset.train.read(np.array([4, 2]))
    np.testing.assert_array_equal(inputs, IMAGES[[4, 2]])
    assert labels.tolist() == [0, 2]


def test_one_file_may_hold_all_parts(tmp_path: Path) -> None:
    parts = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:2], "y_test": LABELS[:2]}
    np.savez(tmp_path / "d.npz", **parts, x_val=IMAGES[:3], y_val=LABELS[:3])
    dataset = load_dataset("npz", path=tmp_path / "d.npz")
    assert (len(dataset.train), len(dataset.validation), len(dataset.test)) == (6, 3, 2)


def test_two_files_may_hold_the_parts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    np.savez(tmp_path / "b.npz", x=IMAGES[:2], y=LABELS[:2])
    dataset = load_dataset("npz", train_path=tmp_path / "a.npz", test_path=tmp_path / "b.npz")
    assert (len(dataset.train), len(dataset.test)) == (6, 2)


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (IMAGES, (3, 8, 10)),
        (IMAGES.transpose(0, 2, 3, 1), (3, 8, 10)),
        (IMAGES[:, 0], (1, 8, 10)),
        (IMAGES[:, :1].transpose(0, 2, 3, 1), (1, 8, 10)),
        (np.repeat(IMAGES, 2, axis=1), (6, 8, 10)),
        (IMAGES.reshape(6, -1), (240,)),
    ],
)
def test_the_layout_is_detected(values: np.ndarray, shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=values, y=LABELS)
    dataset = load_dataset("npz", path=tmp_path / "d.npz")
    assert dataset.input_shape == shape
    assert dataset.train.read(np.array([1]))[0].reshape(-1)[0] == IMAGES[1].reshape(-1)[0]


def test_an_ambiguous_layout_is_channels_first_unless_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((6, 3, 8, 4), np.uint8), y=LABELS)
    assert load_dataset("npz", path=tmp_path / "d.npz").input_shape == (3, 8, 4)
    assert load_dataset("npz", path=tmp_path / "d.npz", input_shape=(4, 3, 8)).input_shape == (4, 3, 8)


def test_fortran_order_and_byte_order_are_honoured(tmp_path: Path) -> None:
    values = np.asfortranarray(IMAGES.astype(">f4"))
    for save, name in ((np.savez, "a.npz"), (np.savez_compressed, "b.npz")):
        save(tmp_path / name, x=values, y=LABELS.astype(">i8"))
        inputs, _ = load_dataset("npz", path=tmp_path / name).train.read(np.arange(6))
        assert inputs.dtype == np.float32
        np.testing.assert_array_equal(inputs, IMAGES)


@pytest.mark.parametrize(
    "targets", [LABELS[:, None], np.eye(3)[LABELS], np.eye(3, dtype=np.uint8)[LABELS], LABELS * 1.0]
)
def test_other_forms_of_classes_are_understood(targets: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=IMAGES, y=targets)
    dataset = load_dataset("npz", path=tmp_path / "d.npz")
    assert dataset.num_classes == 3
    assert dataset.train.read(np.arange(6))[1].tolist() == LABELS.tolist()


@pytest.mark.parametrize("scale", [1, 255, True, 0.9])
@pytest.mark.parametrize("form", ["nhw", "nchw", "nhwc"])
def test_masks_become_zeros_and_ones(scale: float, form: str, tmp_path: Path) -> None:
    truth = IMAGES[:, :1] > 100
    stored = truth if scale is True else (truth * scale).astype(np.uint8 if isinstance(scale, int) else np.float32)
    stored = {"nhw": stored[:, 0], "nchw": stored, "nhwc": stored.transpose(0, 2, 3, 1)}[form]
    np.savez(tmp_path / "d.npz", images=IMAGES, masks=stored)
    dataset = load_dataset("npz", path=tmp_path / "d.npz")
    assert (dataset.task, dataset.num_classes) == ("segmentation", 1)
    masks = dataset.train.read(np.arange(6))[1]
    assert masks.dtype == np.float32
    np.testing.assert_array_equal(masks, truth)


def test_bytes_are_scaled_and_floats_are_not(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    np.savez(tmp_path / "b.npz", x=IMAGES / np.float32(255), y=LABELS)
    assert load_dataset("npz", path=tmp_path / "a.npz").normalization.scale == pytest.approx(1 / 255)
    assert load_dataset("npz", path=tmp_path / "b.npz").normalization.scale == 1.0


def test_uncompressed_arrays_are_memory_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=IMAGES)
    array = NpzFile(tmp_path / "d.npz").array("x")
    assert not array.flags.owndata
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, IMAGES)


def test_missing_keys_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", foo=IMAGES, bar=LABELS)
    with pytest.raises(DataError, match="holds bar, foo: expected keys such as images and labels"):
        load_dataset("npz", path=tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": IMAGES, "y": LABELS[:3]}, "3 targets for 6 inputs"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "at least one sample"),
        ({"x": IMAGES, "y": LABELS.astype(np.int8) - 1}, "label -1 at index 0"),
        ({"x": IMAGES, "y": LABELS * np.nan}, "the target at index 0 is not finite"),
        ({"x": IMAGES, "y": LABELS.astype(np.int64) + 2**40}, "more than a million classes"),
        ({"x": IMAGES, "masks": IMAGES[:, 0, :4]}, "masks of shape"),
        ({"x": np.zeros(5), "y": np.zeros(5, int)}, "expected"),
        ({"x": IMAGES, "y": np.zeros((6, 2, 2, 2, 2))}, "expected"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load_dataset("npz", path=tmp_path / "d.npz")


def test_labels_beyond_the_classes_asked_for_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=IMAGES, y=LABELS)
    with pytest.raises(DataError, match="label 2 at index 2: expected 0 … 1"):
        load_dataset("npz", path=tmp_path / "d.npz", num_classes=2)


def test_test_labels_unknown_in_training_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x_train=IMAGES, y_train=LABELS, x_test=IMAGES, y_test=LABELS + 3)
    with pytest.raises(DataError, match=r"y_test.*label 3"):
        load_dataset("npz", path=tmp_path / "d.npz")


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
@pytest.mark.parametrize(("row", "num_ones"), [((1, 1, 0), 2), ((0, 0, 0), 0)])
def test_rows_of_several_labels_are_multilabel_and_said_to_be(row, num_ones: int, dtype, tmp_path: Path) -> None:
    labels = np.eye(3, dtype=dtype)[[0, 1, 2, 0, 1]]
    labels[3] = row
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 4, 4), np.uint8), y=labels)
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}")
    assert (dataset.task, dataset.num_classes, dataset.output_shape) == ("multilabel", 3, (3,))
    assert "3 labels that do not exclude each other (multilabel)" in dataset.remarks[0]
    targets = dataset.train.read(np.arange(5))[1]
    assert targets.dtype == np.float32
    assert np.array_equal(targets, labels)
    with pytest.raises(DataError, match=rf"\[y\]: row 3 has {num_ones} ones: expected one-hot rows"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}", targets="classification")


@pytest.mark.parametrize(
    ("y", "task", "output_shape"),
    [
        (np.linspace(0, 1, 5), "regression", (1,)),
        (np.linspace(0, 1, 10, dtype=np.float32).reshape(5, 2), "regression", (2,)),
        (np.linspace(0, 1, 80).reshape(5, 4, 4), "regression", (1, 4, 4)),
        (np.linspace(0, 1, 160).reshape(5, 2, 4, 4), "regression", (2, 4, 4)),
        (np.linspace(0, 1, 160).reshape(5, 4, 4, 2), "regression", (2, 4, 4)),
        (np.array([0.0, 1, 1, 0, 1]), "classification", (2,)),
        (np.arange(80).reshape(5, 4, 4) % 2, "segmentation", (1, 4, 4)),
    ],
)
def test_what_targets_are_follows_from_their_values(y, task, output_shape, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((5, 4, 4), np.uint8), y=y)
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}")
    assert (dataset.task, dataset.output_shape) == (task, output_shape)
    assert len(dataset.remarks) == (0 if task == "segmentation" else 1)


@pytest.mark.parametrize(("task", "dtype"), [("regression", "float32"), ("multilabel", "float32")])
def test_the_option_targets_decides_what_ones_and_zeros_are(task, dtype, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 4, 4), np.uint8), y=np.array([0.0, 1, 1, 0]))
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}", targets=task)
    assert (dataset.task, dataset.num_classes, dataset.remarks) == (task, 1, ())
    targets = dataset.train.read(np.arange(4))[1]
    assert (targets.dtype, targets.shape) == (np.dtype(dtype), (4, 1))


def test_weights_of_samples_stand_beside_their_targets(tmp_path: Path) -> None:
    x, y = np.zeros((4, 4, 4), np.uint8), np.array([0, 1, 1, 0])
    parts = {"x_train": x, "y_train": y, "w_train": [1, 2, 3, 4.0], "x_test": x, "y_test": y}
    np.savez(tmp_path / "a.npz", **parts)
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}", validation_split=0.5)
    indices = np.arange(2)
    assert dataset.validation is not None
    kept = [weights_of(part, indices).tolist() for part in (dataset.train, dataset.validation)]
    assert sorted([*kept[0], *kept[1]]) == [1, 2, 3, 4]
    assert weights_of(dataset.test, indices) is None
    np.savez(tmp_path / "b.npz", x=x, y=y, weights=[1, -1, 1, 1])
    with pytest.raises(DataError, match="at least 0"):
        load_dataset(f"npz:{tmp_path / 'b.npz'}")


@pytest.mark.parametrize("rows", [[(0, 3), (2, 0)], [(0, -1), (-1, 0)]])
def test_rows_that_are_not_one_hot_are_refused(rows, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8), y=np.array(rows))
    with pytest.raises(DataError, match=r"targets of 2 columns with values such as .*expected one-hot"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}")


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, bool])
def test_one_hot_rows_are_classes(dtype, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 4, 4), np.uint8), y=np.eye(3, dtype=dtype)[[2, 0, 1, 2]])
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}")
    assert (dataset.num_classes, dataset.train.read(np.arange(4))[1].tolist()) == (3, [2, 0, 1, 2])

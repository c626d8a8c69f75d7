from pathlib import Path

import numpy as np
import pytest

from ringlet.data import load_dataset
from ringlet.data.images import read_image, read_mask
from ringlet.errors import DataError

GREY = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
COLOUR = np.stack([GREY, GREY.T, 255 - GREY], axis=2)
MASK = np.tri(8, dtype=np.uint8)


@pytest.fixture
def class_folder(tmp_path: Path, save_image) -> Path:
    for split, count in (("train", 3), ("val", 1)):
        for name in ("cat", "ant", "bee"):
            for number in range(count):
                save_image(tmp_path / split / name / f"{number}.png", COLOUR)
    return tmp_path


def test_classes_are_the_sorted_folder_names(class_folder: Path) -> None:
    dataset = load_dataset(f"folder:{class_folder}")
    assert dataset.class_names == ("ant", "bee", "cat")
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (9, 3, None)
    inputs, labels = dataset.train.read(np.array([0, 4, 8]))
    assert labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(inputs[1], np.moveaxis(COLOUR, 2, 0))


def test_class_folders_without_splits_are_all_training(class_folder: Path) -> None:
    dataset = load_dataset("folder", path=class_folder / "train")
    assert (len(dataset.train), dataset.validation, dataset.test) == (9, None, None)


def test_images_are_resized_and_converted(class_folder: Path, save_image) -> None:
    save_image(class_folder / "train" / "ant" / "grey.jpg", np.full((20, 30), 200, np.uint8))
    dataset = load_dataset("folder", path=class_folder, image_size=(4, 6))
    assert dataset.input_shape == (3, 4, 6)
    assert dataset.train.read(np.array([3]))[0].mean() == 200
    assert load_dataset("folder", path=class_folder, input_shape=(1, 5, 5)).train.read(np.array([0]))[0].shape == (
        1,
        1,
        5,
        5,
    )


def test_hidden_and_foreign_files_are_left_out(class_folder: Path) -> None:
    (class_folder / "train" / "ant" / ".hidden.png").write_bytes(b"")
    (class_folder / "train" / "ant" / "notes.txt").write_text("no image")
    (class_folder / "train" / ".cache").mkdir()
    assert len(load_dataset("folder", path=class_folder).train) == 9


def test_a_test_class_unknown_in_training_is_an_error(class_folder: Path, save_image) -> None:
    save_image(class_folder / "val" / "dog" / "0.png", COLOUR)
    with pytest.raises(DataError, match="class 'dog'"):
        load_dataset("folder", path=class_folder)


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no class folders"):
        load_dataset("folder", path=tmp_path)
    (tmp_path / "ant").mkdir()
    with pytest.raises(DataError, match="no images"):
        load_dataset("folder", path=tmp_path)


def test_a_damaged_image_names_its_file(class_folder: Path) -> None:
    path = class_folder / "train" / "ant" / "1.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match=r"1\.png: damaged image"):
        load_dataset("folder", path=class_folder)


def test_sixteen_bit_images_are_scaled_not_clipped(tmp_path: Path, save_image) -> None:
    save_image(tmp_path / "a.png", (GREY.astype(np.uint16) << 8))
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", (1, 8, 8))[0], GREY)


@pytest.mark.parametrize(
    ("name", "values", "mode"),
    [
        ("m.gif", MASK, "P"),
        ("m.png", MASK, "P"),
        ("m.png", MASK * 255, None),
        ("m.png", MASK, None),
        ("m.png", MASK.astype(bool), None),
        ("m.png", np.repeat(MASK[:, :, None] * 255, 3, axis=2), None),
        ("m.png", MASK * 5, None),
    ],
)
def test_masks_of_all_kinds_give_the_same(
    name: str, values: np.ndarray, mode: str | None, tmp_path: Path, save_image
) -> None:
    save_image(tmp_path / name, values, mode)
    mask = read_mask(tmp_path / name, (8, 8))
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask[0], MASK)


def test_masks_are_resized_without_new_values(tmp_path: Path, save_image) -> None:
    save_image(tmp_path / "m.png", MASK * 255)
    mask = read_mask(tmp_path / "m.png", (24, 24))
    assert set(np.unique(mask)) == {0.0, 1.0}
    np.testing.assert_array_equal(mask[0, 1::3, 1::3], MASK)


@pytest.mark.parametrize("style", ["folders", "folders-suffix", "beside"])
def test_both_conventions_of_masks_are_found(style: str, tmp_path: Path, save_image) -> None:
    for split, count in (("train", 3), ("val", 2)):
        for number in range(count):
            base = tmp_path / split
            image = base / f"{number}.jpg" if style == "beside" else base / "images" / f"{number}.jpg"
            mask = {"folders": f"masks/{number}.png", "folders-suffix": f"masks/{number}_mask.gif"}.get(
                style, f"{number}_mask.png"
            )
            save_image(image, COLOUR)
            save_image(base / mask, MASK, "P")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.task == "segmentation"
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (3, 2, None)
    np.testing.assert_array_equal(dataset.train.read(np.array([2]))[1][0, 0], MASK)


def test_an_image_without_a_mask_is_named(tmp_path: Path, save_image) -> None:
    save_image(tmp_path / "images" / "a.png", COLOUR)
    save_image(tmp_path / "images" / "b.png", COLOUR)
    save_image(tmp_path / "masks" / "a.png", MASK)
    with pytest.raises(DataError, match=r"b\.png has no mask"):
        load_dataset("masks", path=tmp_path)


def test_real_car_photographs_have_palette_masks(real_data: Path) -> None:
    dataset = load_dataset(f"folder:{real_data / 'carvana'}", image_size=64)
    assert (len(dataset.train), len(dataset.validation)) == (256, 64)
    inputs, masks = dataset.train.read(np.arange(4))
    assert inputs.shape == (4, 3, 64, 64)
    assert set(np.unique(masks)) == {0.0, 1.0}
    assert 0.1 < masks.mean() < 0.5


def test_real_microscope_images_have_binary_masks(real_data: Path) -> None:
    dataset = load_dataset("masks", path=real_data / "nuclei")
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (48, 16, None)
    assert dataset.input_shape == (3, 256, 256)
    masks = dataset.train.read(np.arange(3))[1]
    assert masks.shape == (3, 1, 256, 256)
    assert 0.0 < masks.mean() < 0.6

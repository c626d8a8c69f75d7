"""Where masks are found, and what their pixels mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from ringlet.data import load_dataset
from ringlet.data.images import read_mask
from ringlet.data.masks import MaskMeaning
from ringlet.errors import DataError, RingletError

PHOTO = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
MASK = np.tri(8, dtype=np.uint8)
CLASSES = np.arange(64, dtype=np.uint8).reshape(8, 8) % 4

LAYOUTS = {
    "above": "{part}/images/{n}.png {part}/masks/{n}.png",
    "above, with suffix": "{part}/imgs/{n}.png {part}/mask/{n}_mask.gif",
    "below": "images/{part}/{n}.png masks/{part}/{n}.png",
    "below, as annotations": "images/{part}ing/{n}.jpg annotations/{part}ing/{n}.png",
    "beside": "{part}/{n}.png {part}_masks/{n}_mask.gif",
    "in one folder": "{part}/{n}.png {part}/{n}_mask.png",
}


@pytest.fixture
def make_pairs(tmp_path: Path, save_image):
    """Write ``count`` pairs with names as a pattern says."""

    def make(pattern: str, count: int, mask: np.ndarray = MASK, mode: str | None = None, **names: str) -> Path:
        for number in range(count):
            image_name, mask_name = pattern.format(n=number, **names).split()
            save_image(tmp_path / image_name, PHOTO)
            save_image(tmp_path / mask_name, mask, mode)
        return tmp_path

    return make


@pytest.mark.parametrize("kind", ["folder", "masks"])
@pytest.mark.parametrize("pattern", LAYOUTS.values(), ids=LAYOUTS)
def test_images_and_masks_are_found_in_every_layout(kind: str, pattern: str, make_pairs) -> None:
    folder = make_pairs(pattern, 3, part="train")
    make_pairs(pattern, 2, part="test")
    dataset = load_dataset(f"{kind}:{folder}")
    assert (dataset.task, dataset.num_classes) == ("segmentation", 1)
    assert (len(dataset.train), dataset.validation, len(dataset.test)) == (3, None, 2)
    np.testing.assert_array_equal(dataset.test.read(np.array([1]))[1][0, 0], MASK)


@pytest.mark.parametrize("pattern", [LAYOUTS["above"], LAYOUTS["below"], LAYOUTS["beside"]])
@pytest.mark.parametrize("split", [None, 0.0])
def test_a_validation_folder_serves_for_validation_and_not_for_test(
    pattern: str, split: float | None, make_pairs
) -> None:
    folder = make_pairs(pattern, 20, part="train")
    make_pairs(pattern, 2, part="val")
    dataset = load_dataset("masks", path=folder, validation_split=split)
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (20, 2, None)


def test_without_a_validation_folder_a_tenth_is_held_out_by_default(make_pairs) -> None:
    dataset = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 20), validation_split=None)
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (18, 2, None)


def test_a_given_split_is_taken_from_the_training_data_even_beside_a_validation_folder(make_pairs) -> None:
    folder = make_pairs(LAYOUTS["above"], 20, part="train")
    make_pairs(LAYOUTS["above"], 3, part="val")
    dataset = load_dataset("masks", path=folder, validation_split=0.5)
    assert (len(dataset.train), len(dataset.validation), dataset.test) == (10, 10, None)


@pytest.mark.parametrize("mode", ["P", None])
def test_the_values_of_a_mask_are_classes_if_their_number_is_given(mode: str | None, make_pairs) -> None:
    folder = make_pairs("images/{n}.png masks/{n}.png", 4, CLASSES, mode)
    dataset = load_dataset("masks", path=folder, num_classes=4)
    assert (dataset.num_classes, dataset.task) == (4, "segmentation")
    targets = dataset.train.read(np.array([2, 0]))[1]
    assert (targets.dtype, targets.shape) == (np.int64, (2, 8, 8))
    np.testing.assert_array_equal(targets[1], CLASSES)


def test_classes_are_resized_without_new_ones(make_pairs) -> None:
    folder = make_pairs("images/{n}.png masks/{n}.png", 1, np.where(MASK, 9, 0).astype(np.uint8))
    target = load_dataset("masks", path=folder, num_classes=10, image_size=24).train.read(np.array([0]))[1]
    assert set(np.unique(target)) == {0, 9}


@pytest.mark.parametrize("mask", [MASK, MASK * 7, MASK * 255], ids=["one", "seven", "white"])
@pytest.mark.parametrize("mode", ["P", None])
def test_two_classes_are_background_and_object(mask: np.ndarray, mode: str | None, make_pairs) -> None:
    dataset = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, mask, mode), num_classes=2)
    np.testing.assert_array_equal(dataset.train.read(np.array([0]))[1][0], MASK)
    assert dataset.class_names == ("background", "object")


@pytest.mark.parametrize("mode", ["P", None])
def test_masks_of_several_classes_are_not_merged_unasked(mode: str | None, make_pairs) -> None:
    folder = make_pairs("images/{n}.png masks/{n}.png", 1, CLASSES, mode)
    with pytest.raises(
        DataError, match=r"0\.png: a mask with 4 different values \(0, 1, 2, 3\).*num_classes, at least 4"
    ):
        load_dataset("masks", path=folder)


def test_masks_of_several_classes_are_merged_if_asked(make_pairs) -> None:
    dataset = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, CLASSES), num_classes=1)
    np.testing.assert_array_equal(dataset.train.read(np.array([0]))[1][0, 0], CLASSES != 0)


def test_grey_masks_with_soft_edges_are_binary(make_pairs) -> None:
    soft = np.linspace(0, 255, 64).astype(np.uint8).reshape(8, 8)
    dataset = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, soft))
    np.testing.assert_array_equal(dataset.train.read(np.array([0]))[1][0, 0], soft >= 128)


def test_a_class_out_of_range_names_the_file_and_the_value(make_pairs) -> None:
    void = np.where(MASK, 255, 2).astype(np.uint8)
    with pytest.raises(DataError, match=r"0\.png: 36 pixels have values such as 255: expected classes 0 … 20"):
        load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, void), num_classes=21)


def test_a_mask_in_colours_has_no_classes(make_pairs) -> None:
    folder = make_pairs("images/{n}.png masks/{n}.png", 1, np.stack([CLASSES * 60, CLASSES * 0, CLASSES], axis=2))
    with pytest.raises(DataError, match=r"a mask in colours"):
        load_dataset("masks", path=folder, num_classes=4)


def test_grey_stored_as_colours_has_classes(make_pairs) -> None:
    folder = make_pairs("images/{n}.png masks/{n}.png", 1, np.stack([CLASSES] * 3, axis=2))
    target = load_dataset("masks", path=folder, num_classes=4).train.read(np.array([0]))[1][0]
    np.testing.assert_array_equal(target, CLASSES)


@pytest.mark.parametrize(("values", "factor", "num_classes"), [(CLASSES, 1, 4), (MASK, 1, 1), (MASK, 65535, 1)])
def test_sixteen_bit_masks_are_read(values: np.ndarray, factor: int, num_classes: int, tmp_path: Path) -> None:
    Image.fromarray(values.astype(np.uint16) * np.uint16(factor)).save(tmp_path / "m.png")
    mask = read_mask(tmp_path / "m.png", (8, 8), MaskMeaning.of(num_classes))
    np.testing.assert_array_equal(mask.reshape(8, 8), values)


def test_a_mask_of_other_proportions_is_refused_with_both_sizes(make_pairs) -> None:
    source = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, MASK[:4])).train
    with pytest.raises(DataError, match=r"0\.png: a mask of 8 x 4 pixels for an image of 8 x 8"):
        source.read(np.array([0]))


def test_a_smaller_mask_of_the_same_proportions_serves(make_pairs) -> None:
    source = load_dataset("masks", path=make_pairs("images/{n}.png masks/{n}.png", 1, MASK[::2, ::2])).train
    np.testing.assert_array_equal(source.read(np.array([0]))[1][0, 0, ::2, ::2], MASK[::2, ::2])


def test_masks_in_arrays_may_have_classes_too(tmp_path: Path) -> None:
    images, masks = np.zeros((3, 8, 8, 3), np.uint8), np.stack([CLASSES] * 3)
    np.savez(tmp_path / "a.npz", images=images, masks=masks)
    targets = load_dataset(f"npz:{tmp_path / 'a.npz'}", num_classes=4).train.read(np.array([1]))[1]
    np.testing.assert_array_equal(targets[0], CLASSES)
    with pytest.raises(DataError, match=r"masks\], mask 1: a mask with 4 different values"):
        load_dataset(f"npz:{tmp_path / 'a.npz'}").train.read(np.array([1]))


def test_classes_in_arrays_are_resized_with_their_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 8, 8), np.uint8), masks=CLASSES[None])
    dataset = load_dataset(f"npz:{tmp_path / 'a.npz'}", num_classes=4, image_size=16)
    inputs, targets = dataset.train.read(np.array([0]))
    assert inputs.shape == (1, 1, 16, 16)
    np.testing.assert_array_equal(targets[0], CLASSES.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize("num_classes", [2, 4])
def test_the_built_in_shapes_have_classes_if_asked(num_classes: int) -> None:
    plain = load_dataset("shapes", num_samples=40).train.read(np.arange(40))[1]
    dataset = load_dataset("shapes", num_samples=40, num_classes=num_classes)
    classes = dataset.train.read(np.arange(40))[1]
    assert (classes.dtype, len(dataset.class_names)) == (np.int64, num_classes)
    np.testing.assert_array_equal(classes > 0, plain[:, 0] > 0)
    assert set(np.unique(classes)) == set(range(num_classes))


def test_shapes_of_three_classes_do_not_exist() -> None:
    with pytest.raises(RingletError, match="1, 2 or 4"):
        load_dataset("shapes", num_classes=3)


# -- areas of further values, and colours -----------------------------------------------------------------------------
def bands(*values: object) -> np.ndarray:
    """A mask of 96 x 48 pixels with an area of each value or colour, from left to right."""
    return np.repeat(np.repeat(np.array([values], np.uint8), 96 // len(values), axis=1), 48, axis=0)


BLACK, RED, BLUE, WHITE = (0, 0, 0), (255, 0, 0), (0, 0, 255), (255, 255, 255)


@pytest.mark.parametrize("num_classes", [None, 2])
@pytest.mark.parametrize("extension", ["png", "jpg"])
@pytest.mark.parametrize("values", [(0, 127, 255), (0, 85, 170, 255), (127, 255), (0, 50, 200)])
def test_grey_values_between_are_not_taken_for_background(values, extension, num_classes, tmp_path, save_image) -> None:
    save_image(tmp_path / f"m.{extension}", bands(*values))
    found = ", ".join(map(str, values))
    with pytest.raises(DataError, match=rf"areas of {len(values)} different values \({found}\): expected 0"):
        read_mask(tmp_path / f"m.{extension}", (24, 48), MaskMeaning.of(num_classes))


def test_small_classes_beside_white_are_not_taken_for_background(tmp_path, save_image) -> None:
    save_image(tmp_path / "m.png", bands(0, 1, 5, 255))
    with pytest.raises(DataError, match=r"areas of 4 different values \(0, 1, 5, 255\)"):
        read_mask(tmp_path / "m.png", (48, 96))


@pytest.mark.parametrize("values", [(0, 127, 255), (0, 128, 255), (0, 85, 170, 255)])
def test_evenly_spread_greys_are_classes_if_their_number_is_given(values, tmp_path, save_image) -> None:
    save_image(tmp_path / "m.png", bands(*values))
    expected = bands(*range(len(values)))
    target = read_mask(tmp_path / "m.png", expected.shape, MaskMeaning.of(len(values)))
    np.testing.assert_array_equal(target, expected)
    save_image(tmp_path / "n.png", bands(0, 255))  # a mask that lacks the others has the same meaning
    assert set(np.unique(read_mask(tmp_path / "n.png", (48, 96), MaskMeaning.of(len(values))))) == {0, len(values) - 1}


def test_other_greys_are_refused_with_all_that_was_found_and_expected(tmp_path, save_image) -> None:
    save_image(tmp_path / "m.png", bands(0, 50, 200))
    with pytest.raises(
        DataError,
        match=r"expected classes 0 … 2, or the grey values 0, 127, 255, as num_classes = 3 says; .*0, 50, 200",
    ):
        read_mask(tmp_path / "m.png", (48, 96), MaskMeaning.of(3))


@pytest.mark.parametrize("num_classes", [None, 2])
@pytest.mark.parametrize("colours", [(RED, WHITE), (BLUE, RED), (BLACK, RED, WHITE)])
def test_colours_are_not_taken_for_background(colours, num_classes, tmp_path, save_image) -> None:
    save_image(tmp_path / "m.png", bands(*colours))
    with pytest.raises(
        DataError, match=r"a mask in colours \(.*#ff0000.*expected black for the background and one other"
    ):
        read_mask(tmp_path / "m.png", (48, 96), MaskMeaning.of(num_classes))


@pytest.mark.parametrize("extension", ["png", "jpg"])
@pytest.mark.parametrize("colours", [(BLACK, RED), (BLACK, BLUE)])
def test_black_and_one_colour_are_background_and_object(colours, extension, tmp_path, save_image) -> None:
    save_image(tmp_path / f"m.{extension}", bands(*colours))
    np.testing.assert_array_equal(read_mask(tmp_path / f"m.{extension}", (48, 96))[0], bands(0, 1))


def test_all_colours_but_black_are_merged_if_asked(tmp_path, save_image) -> None:
    save_image(tmp_path / "m.png", bands(BLACK, RED, WHITE, BLUE))
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", (48, 96), MaskMeaning.of(1))[0], bands(0, 1, 1, 1))


def test_a_mask_may_be_in_the_transparency(tmp_path) -> None:
    image = Image.new("RGBA", (96, 48))
    image.putalpha(Image.fromarray(bands(0, 255)))
    image.save(tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", (48, 96))[0], bands(0, 1))


@pytest.mark.parametrize("extension", ["png", "jpg"])
@pytest.mark.parametrize("radius", [0.7, 2, 8, 20])
def test_soft_edges_of_photographs_sizes_are_binary(radius, extension, tmp_path) -> None:
    image = Image.new("L", (640, 480))
    ImageDraw.Draw(image).ellipse((100, 100, 500, 400), fill=255)
    ImageDraw.Draw(image).rectangle((550, 20, 600, 300), fill=255)
    image.filter(ImageFilter.GaussianBlur(radius)).save(tmp_path / f"m.{extension}")
    mask = read_mask(tmp_path / f"m.{extension}", (480, 640))[0]
    assert (mask != np.asarray(image) / 255).mean() < 0.01


def test_arrays_with_areas_between_are_refused_too(tmp_path) -> None:
    masks = np.stack([bands(0, 127, 255)] * 2)
    for dtype in (np.uint8, np.float32):
        np.savez(tmp_path / "a.npz", images=np.zeros((2, *masks.shape[1:]), np.uint8), masks=masks.astype(dtype))
        with pytest.raises(DataError, match=r"mask 1: a mask with areas of 3 different values"):
            load_dataset(f"npz:{tmp_path / 'a.npz'}").train.read(np.array([1]))

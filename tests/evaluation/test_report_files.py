"""Reports as files: everything as JSON, tables, pictures of the worst samples, and one palette for all of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ringlet.comm.single import SingleCommunicator
from ringlet.data.builtin import ShapesSource
from ringlet.data.folders import ClassFolderSource
from ringlet.data.palette import COLOURS, as_hex, colour, painted
from ringlet.data.source import ArraySource, SubsetSource, files_of
from ringlet.errors import UsageError
from ringlet.evaluation import Example, Report
from ringlet.evaluation.files import caption, write_report
from ringlet.evaluation.report import make_report, make_tally
from ringlet.evaluation.sheets import draw_tiles, shortened


def classes_report(images: np.ndarray) -> Report:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, len(images))
    tally = make_tally("classification", ("ä,b", "c", "d"), 3)
    tally.take(np.arange(len(images)), rng.random((len(images), 3)), truth)
    return make_report(tally, ArraySource(images, truth, 3), {"loss": 1.0}, SingleCommunicator(), split="test")


def test_a_report_of_classes_is_json_two_tables_and_two_sheets(tmp_path: Path) -> None:
    report = classes_report(np.random.default_rng(1).integers(0, 256, (30, 3, 20, 24), dtype=np.uint8))
    report.write(tmp_path / "deep" / "er")
    names = {path.name for path in (tmp_path / "deep" / "er").iterdir()}
    pictures = {"most_confident_wrong.png", "least_likely_truth.png"}
    assert names == {"report.json", "classes.csv", "confusion.csv"} | pictures
    document = json.loads((tmp_path / "deep" / "er" / "report.json").read_text())
    assert set(document.pop("pictures")) == pictures
    assert document.pop("colours") == []
    assert document == report.to_dict()
    with (tmp_path / "deep" / "er" / "confusion.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0][1:] == ["ä,b", "c", "d"]
    assert [list(map(int, row[1:])) for row in rows[1:]] == report.confusion.tolist()


def test_a_sheet_shows_the_very_pixels_of_its_samples() -> None:
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 128, 128), dtype=np.uint8)
    sheet = np.asarray(draw_tiles(list(images), [("one", "two")] * 5, "title"))
    np.testing.assert_array_equal(sheet[22 : 22 + 128, 6 : 6 + 128], np.moveaxis(images[0], 0, 2))
    second_row = 22 + 128 + 2 * 16 + 6
    np.testing.assert_array_equal(sheet[second_row : second_row + 128, 6 : 6 + 128], np.moveaxis(images[4], 0, 2))


def test_digits_of_sixteen_levels_are_shown_bright() -> None:
    images = np.random.default_rng(1).integers(0, 17, (2, 1, 128, 128), dtype=np.uint8)
    sheet = np.asarray(draw_tiles(list(images), [("",)] * 2, ""))
    assert sheet[22 : 22 + 128, 6 : 6 + 128].max() == 255


def test_masks_are_drawn_in_the_palette_of_predictions(tmp_path: Path) -> None:
    source = ShapesSource((3, 32, 32), 6, num_classes=4)
    targets = source.read(np.arange(6))[1]
    outputs = np.zeros((6, 4, 32, 32), np.float32)
    outputs[:, 2] = 1
    tally = make_tally("segmentation", ("background", "a", "b", "c"), 4, 3)
    tally.take(np.arange(6), outputs, targets)
    report = make_report(tally, source, {}, SingleCommunicator(), split="test")
    write_report(report, tmp_path)
    sheet = np.asarray(PIL.Image.open(tmp_path / "worst.png").convert("RGB"))
    prediction = sheet[16 : 16 + 128, 6 + 2 * 134 : 6 + 2 * 134 + 128]
    assert {tuple(pixel) for row in prediction.tolist() for pixel in row} == {colour(2)}
    assert json.loads((tmp_path / "report.json").read_text())["colours"] == [as_hex(index) for index in range(4)]


def test_an_older_report_leaves_nothing_that_is_no_longer_true(tmp_path: Path) -> None:
    (tmp_path / "worst.png").write_bytes(b"old")
    (tmp_path / "mine.txt").write_text("kept")
    classes_report(np.zeros((4, 1, 8, 8), np.uint8)).write(tmp_path)
    assert not (tmp_path / "worst.png").exists()
    assert (tmp_path / "mine.txt").exists()


def test_features_have_no_pictures(tmp_path: Path) -> None:
    files = classes_report(np.zeros((9, 5), np.float32)).write(tmp_path)
    assert {path.name for path in files} == {"report.json", "classes.csv", "confusion.csv"}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot make folder"):
        classes_report(np.zeros((4, 5), np.float32)).write(tmp_path / "file" / "below")


def test_samples_of_folders_are_named_by_their_files() -> None:
    source = ClassFolderSource([Path("a/1.png"), Path("b/2.png")], [0, 1], 2, (3, 4, 4))
    assert files_of(SubsetSource(source, np.array([1])), 0) == (Path("b/2.png"),)
    assert files_of(ArraySource(np.zeros((1, 2)), np.zeros(1, np.int64), 1), 0) == ()


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (Example(4, 0.9, "x/y.png", "cat", "dog", 0.9, 0.05), ("truth cat 5.0%", "predicted dog 90.0%", "y.png")),
        (Example(4, 0.9, truth="1.5", predicted="2", error=0.5), ("truth 1.5", "predicted 2", "error 0.5", "sample 4")),
        (Example(4, 0.9, error=0.25), ("error 0.25", "sample 4")),
    ],
)
def test_captions_say_truth_prediction_and_which_sample(example: Example, expected: tuple[str, ...]) -> None:
    assert caption(example) == expected


def test_long_and_foreign_names_fit_below_a_picture() -> None:
    assert len(shortened("x" * 100, 134)) == 22
    assert shortened("\N{CJK UNIFIED IDEOGRAPH-732B}", 134) == "?"


def test_all_classes_have_a_colour_of_their_own() -> None:
    assert len({colour(index) for index in range(256)}) == 256
    assert (colour(0), colour(256)) == ((0, 0, 0), colour(1))
    np.testing.assert_array_equal(painted(np.array([[0, 3], [256, 255]])), COLOURS[[[0, 3], [1, 255]]])

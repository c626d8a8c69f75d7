"""What is found out, and said, about the pictures of a folder before training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ringlet import Trainer
from ringlet.data import bounded, load_dataset, survey
from ringlet.errors import DataError


def save(path: Path, mode: str, size: tuple[int, int], **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 200 if mode == "L" else None).save(path, **options)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """The first picture is grey, the others are not."""
    save(tmp_path / "ant" / "0.png", "L", (30, 40))
    for number in range(1, 5):
        save(tmp_path / "ant" / f"{number}.jpg", "RGB", (400, 300))
        save(tmp_path / "bee" / f"{number}.png", "RGBA", (60, 60))
    return tmp_path


def test_one_colour_picture_makes_a_folder_colour(pets: Path) -> None:
    assert load_dataset(f"folder:{pets}").input_shape == (3, 40, 30)
    assert load_dataset(f"folder:{pets}", image_size=16).input_shape == (3, 16, 16)
    for path in pets.rglob("[1-9].*"):
        path.unlink()
    assert load_dataset(f"folder:{pets}", image_size=16).input_shape == (1, 16, 16)


def test_the_images_of_masks_are_colour_too(tmp_path: Path) -> None:
    for number, mode in enumerate(("L", "RGB")):
        save(tmp_path / "images" / f"{number}.png", mode, (8, 8))
        save(tmp_path / "masks" / f"{number}.png", "L", (8, 8))
    dataset = load_dataset(f"masks:{tmp_path}")
    assert dataset.input_shape == (3, 8, 8)
    assert dataset.remarks == ("1 of 2 pictures are grey, the others have colours: all are read as colour",)


def test_unequal_pictures_are_reported(pets: Path) -> None:
    assert load_dataset(f"folder:{pets}", image_size=(16, 24)).remarks == (
        "9 pictures have 3 sizes (from 30x40 to 400x300, width x height) and are resized to 24x16",
        "1 of 9 pictures are grey, the others have colours: all are read as colour",
        "4 of 9 pictures have transparency, which is dropped",
    )
    without = load_dataset(f"folder:{pets}")
    assert "resized to 30x40, the size of the first one; --image-size" in without.remarks[0]
    assert "read as grey" in load_dataset(f"folder:{pets}", input_shape=(1, 8, 8)).remarks[1]


def test_equal_pictures_need_no_remark(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "ant" / f"{number}.jpg", "RGB", (40, 30))
    assert load_dataset(f"folder:{tmp_path}", image_size=16).remarks == ()


def test_the_remarks_are_shown_before_training(pets: Path) -> None:
    trainer = Trainer("simplecnn", f"folder:{pets}", image_size=(16, 16), num_epochs=1)
    assert any("9 pictures have 3 sizes" in remark for remark in trainer.remarks)


def test_of_very_many_files_some_are_looked_at_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        save(tmp_path / "ant" / f"{number:02}.png", "L" if number % 2 else "RGB", (8 + number, 8))
    monkeypatch.setattr(survey, "MAX_FILES", 10)
    seen = [load_dataset(f"folder:{tmp_path}", image_size=8) for _ in range(2)]
    assert seen[0].remarks == seen[1].remarks
    assert seen[0].remarks[0].startswith("10 pictures of the 10 that were looked at have 10 sizes (from 8x8 to 37x8")
    assert seen[0].remarks[-1] == "sizes and colours follow from 10 of 30 pictures, evenly spread"


def test_only_the_beginnings_of_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    for extension in ("jpg", "png", "bmp", "webp", "tif", "gif"):
        Image.fromarray(noise).save(tmp_path / f"x.{extension}")
    with monkeypatch.context() as patch:
        patch.setattr(bounded, "_HEADER_BYTES", 1000)
        found = survey.survey(sorted(tmp_path.iterdir()))
    assert found.sizes == {(800, 600): 6}
    monkeypatch.setattr(bounded, "identify", None)  # which takes the whole file
    assert survey.survey([tmp_path / "x.jpg", tmp_path / "x.png"]).sizes == {(800, 600): 2}


def test_all_broken_files_are_named_at_once(pets: Path) -> None:
    (pets / "bee" / "2.png").write_bytes(b"no picture")
    cut = pets / "ant" / "3.jpg"
    cut.write_bytes(cut.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"2 of 9 files cannot be read: .*3\.jpg: .*2\.png: .*--skip-broken"):
        load_dataset(f"folder:{pets}", image_size=8)


def test_an_empty_class_folder_is_reported_and_keeps_its_number(pets: Path) -> None:
    (pets / "ape").mkdir()
    save(pets / "cow" / "inner" / "0.png", "RGB", (60, 60))
    dataset = load_dataset(f"folder:{pets}", image_size=8)
    assert dataset.class_names == ("ant", "ape", "bee", "cow")
    assert set(dataset.train.read(np.arange(9))[1].tolist()) == {0, 2}
    assert dataset.remarks[-1].startswith(
        "2 of 4 class folders for training have no pictures directly in them: 'ape' (class 1), 'cow' (class 3). "
    )

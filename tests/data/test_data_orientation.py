"""Photographs are upright wherever they are decoded: the EXIF orientation of a file is applied."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from ringlet.data import load_dataset
from ringlet.data.images import decode_image, read_image, read_mask, read_pair
from ringlet.data.masks import BINARY
from ringlet.errors import DataError

KINDS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "TIFF": "tif"}


def photograph() -> Image.Image:
    """400 x 300 pixels; no two of its eight orientations look alike."""
    values = np.zeros((300, 400, 3), np.uint8)
    values[:100, :, 0] = 255
    values[:, :80, 1] = 255
    return Image.fromarray(values)


def oriented(image: Image.Image, kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, kind, exif=exif)
    return stream.getvalue()


def upright(content: bytes) -> Image.Image:
    """As Pillow turns the whole picture."""
    return ImageOps.exif_transpose(Image.open(io.BytesIO(content)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_of_every_format_becomes_upright(kind: str, orientation: int) -> None:
    content = oriented(photograph(), kind, orientation)
    expected = upright(content).convert("RGB")
    found, size = decode_image(content, (3, 60, 40), "x")
    assert size == (expected.height, expected.width)
    difference = found.astype(int) - np.asarray(expected.resize((40, 60), Image.Resampling.BILINEAR))
    assert np.abs(difference).mean() < 1


def test_a_folder_takes_the_upright_size_of_its_first_photograph(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.jpg").write_bytes(oriented(photograph(), "JPEG", 6))
    assert load_dataset("folder", path=tmp_path).input_shape == (3, 400, 300)


def test_masks_are_turned_by_their_own_orientation(tmp_path: Path) -> None:
    mask = Image.fromarray(np.tri(30, 40, dtype=np.uint8) * 255)
    (tmp_path / "m.png").write_bytes(oriented(mask, "PNG", 8))
    expected = np.rot90(np.tri(30, 40))
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", (40, 30))[0], expected)
    photo = Image.fromarray(np.tri(30, 40, dtype=np.uint8) * 255)
    (tmp_path / "x.png").write_bytes(oriented(photo, "PNG", 8))
    image, target = read_pair(tmp_path / "x.png", tmp_path / "m.png", (1, 40, 30), BINARY)
    np.testing.assert_array_equal(image[0] > 0, target[0] > 0)


def test_a_mask_of_the_picture_as_stored_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(oriented(photograph(), "JPEG", 6))
    Image.new("L", (400, 300)).save(tmp_path / "m.png")
    with pytest.raises(DataError, match=r"a mask of 400 x 300 pixels for an image of 300 x 400.*EXIF orientation"):
        read_pair(tmp_path / "x.jpg", tmp_path / "m.png", (3, 40, 30), BINARY)


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0nonsense", b"Exif\0\0"])
@pytest.mark.filterwarnings("ignore")
def test_damaged_exif_does_not_concern_the_picture(exif: bytes, tmp_path: Path) -> None:
    photograph().save(tmp_path / "x.jpg", exif=exif)
    photograph().save(tmp_path / "y.jpg")
    np.testing.assert_array_equal(*(read_image(tmp_path / name, (3, 30, 40)) for name in ("x.jpg", "y.jpg")))


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_orientations_that_do_not_exist_turn_nothing(orientation: int) -> None:
    assert decode_image(oriented(photograph(), "JPEG", orientation), (3, 30, 40), "x")[1] == (300, 400)


def test_a_turned_photograph_is_still_decoded_at_a_fraction(monkeypatch: pytest.MonkeyPatch) -> None:
    content = oriented(photograph().resize((1600, 1200)), "JPEG", 6)
    monkeypatch.setenv("RINGLET_MAX_PIXELS", "31000")
    assert decode_image(content, (3, 200, 150), "x")[1] == (1600, 1200)
    monkeypatch.setenv("RINGLET_MAX_PIXELS", "29000")
    with pytest.raises(DataError, match="at most 29,000"):
        decode_image(content, (3, 200, 150), "x")

"""How much memory a picture may take: strips give the same pixels as the whole, and too many pixels are refused."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.data import images
from ringlet.data.bounded import MAX_PIXELS
from ringlet.data.images import decode_image, read_image, read_mask, read_pair, scaled
from ringlet.data.masks import BINARY, MaskMeaning
from ringlet.errors import ConfigError, DataError

MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "F", "I;16", "I;16B")
MEBIBYTE = 1 << 20


def picture(mode: str, width: int, height: int, seed: int = 0) -> PIL.Image.Image:
    """Noise in any mode."""
    rng = np.random.default_rng(seed)
    if mode in ("I", "F"):
        return PIL.Image.fromarray(
            rng.integers(-50, 400, (height, width)).astype(np.int32 if mode == "I" else np.float32)
        )
    if mode.startswith("I;16"):
        values = rng.integers(0, 1 << 16, (height, width)).astype(">u2" if mode.endswith("B") else "<u2")
        return PIL.Image.frombytes(mode, (width, height), values.tobytes())
    base = PIL.Image.fromarray(rng.integers(0, 256, (height, width, 4)).astype(np.uint8))
    if mode == "P":
        image = base.convert("RGB").quantize(16)
        image.info["transparency"] = 3
        return image
    if mode == "LAB":
        return PIL.Image.frombytes("LAB", base.size, base.convert("RGB").tobytes())
    return base.convert("P").convert(mode) if mode == "PA" else base.convert(mode)


def plain(image: PIL.Image.Image, mode: str, size: tuple[int, int]) -> PIL.Image.Image:
    """The whole picture at once, as Pillow does it."""
    if image.mode.startswith("I;16"):
        image = PIL.Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    converted = image.convert(mode)
    return converted if converted.size == size else converted.resize(size, PIL.Image.Resampling.BILINEAR)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wanted", ["L", "RGB", "RGBA"])
@settings(max_examples=12, deadline=None)
@given(
    width=st.integers(1, 60), height=st.integers(1, 60),
    new_width=st.integers(1, 80), new_height=st.integers(1, 80), strip=st.integers(1, 900), seed=st.integers(0, 99),
)  # fmt: skip
def test_strips_give_the_pixels_of_the_whole(mode, wanted, width, height, new_width, new_height, strip, seed):
    image = picture(mode, width, height, seed)
    if mode == "LAB" and wanted != "RGB":
        return  # Pillow converts it to nothing else
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "STRIP_PIXELS", strip)
        patch.setattr(images, "WHOLE_PIXELS", 0)
        found = scaled(image, wanted, (new_width, new_height))
    expected = plain(image, wanted, (new_width, new_height))
    assert found.mode == expected.mode == wanted
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


@pytest.mark.parametrize("extension", ["png", "jpg", "gif", "bmp", "tif", "webp", "ppm"])
def test_files_of_every_format_give_the_same_in_strips(tmp_path, monkeypatch, extension):
    path = tmp_path / f"x.{extension}"
    picture("RGB", 97, 61).save(path)
    for shape in ((1, 40, 30), (3, 61, 97), (3, 100, 20), (4, 17, 23)):
        whole = read_image(path, shape)
        with monkeypatch.context() as patch:
            patch.setattr(images, "STRIP_PIXELS", 100)
            patch.setattr(images, "WHOLE_PIXELS", 0)
            np.testing.assert_array_equal(read_image(path, shape), whole)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("meaning", [BINARY, MaskMeaning.of(2), MaskMeaning.of(1), MaskMeaning.of(1 << 16)])
def test_masks_are_the_same_in_strips(tmp_path, monkeypatch, mode, meaning):
    path = tmp_path / "x.png"
    picture(mode, 41, 37).save(path)

    def outcome(strip: int) -> object:
        monkeypatch.setattr(images, "STRIP_PIXELS", strip)
        try:
            return read_mask(path, (20, 30), meaning).tolist()
        except DataError as error:
            return str(error)

    assert outcome(60) == outcome(1 << 20)


@pytest.mark.parametrize(("largest", "expected"), [(3, 3), (256, 1), (3 << 8, 3)])
def test_masks_of_sixteen_bits_hold_classes_in_either_byte(tmp_path, monkeypatch, largest, expected):
    values = np.zeros((40, 40), np.uint16)
    values[-1, -1] = largest
    PIL.Image.fromarray(values).save(tmp_path / "x.png")
    monkeypatch.setattr(images, "STRIP_PIXELS", 80)
    assert read_mask(tmp_path / "x.png", (40, 40), MaskMeaning.of(4))[-1, -1] == expected


def encoded(width: int, height: int, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    picture("RGB", width, height).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "is_fine"),
    [
        (encoded(100, 100), True),
        (encoded(101, 100), False),
        (encoded(100, 101, "TIFF", compression="tiff_lzw"), False),
        (encoded(101, 100, "GIF"), False),
        (encoded(50, 100, "WEBP"), True),
        (encoded(51, 100, "WEBP"), False),
        (encoded(300, 200, "JPEG"), True),
        (encoded(900, 900, "JPEG"), False),
        (encoded(300, 200, "JPEG", progressive=True), False),
    ],
    ids=["png", "large png", "tiff", "gif", "webp", "large webp", "jpeg", "large jpeg", "progressive jpeg"],
)
def test_pixels_that_are_held_at_once_are_limited(monkeypatch, content, is_fine):
    expected = decode_image(content, (3, 10, 10), "x")[0]
    monkeypatch.setenv("RINGLET_MAX_PIXELS", "10000")
    if is_fine:
        np.testing.assert_array_equal(decode_image(content, (3, 10, 10), "x")[0], expected)
        return
    with pytest.raises(DataError, match=r"^x: \d+ x \d+ pixels.*at most 10,000,.*set RINGLET_MAX_PIXELS=\d+") as caught:
        decode_image(content, (3, 10, 10), "x")
    needed = str(caught.value).partition("RINGLET_MAX_PIXELS=")[2].split()[0]
    monkeypatch.setenv("RINGLET_MAX_PIXELS", needed)
    np.testing.assert_array_equal(decode_image(content, (3, 10, 10), "x")[0], expected)


def test_masks_and_pairs_are_limited_too(tmp_path, monkeypatch):
    picture("L", 120, 120).save(tmp_path / "x.png")
    monkeypatch.setenv("RINGLET_MAX_PIXELS", "10000")
    with pytest.raises(DataError, match="at most 10,000"):
        read_mask(tmp_path / "x.png", (10, 10))
    with pytest.raises(DataError, match="at most 10,000"):
        read_pair(tmp_path / "x.png", tmp_path / "x.png", (3, 10, 10), BINARY)


@pytest.mark.parametrize("value", ["many", "0", "-5", "1e9"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch, value):
    monkeypatch.setenv("RINGLET_MAX_PIXELS", value)
    with pytest.raises(ConfigError, match=f"RINGLET_MAX_PIXELS='{value}'"):
        decode_image(encoded(5, 5), (3, 10, 10), "x")


def test_pillows_own_limit_neither_warns_nor_refuses(monkeypatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
    for kind in ("PNG", "JPEG", "BMP"):
        assert decode_image(encoded(40, 40, kind), (3, 10, 10), "x")[1] == (40, 40)


# -- memory, of a process of its own ----------------------------------------------------------------------------------
PROGRAM = """
import json, resource, sys
from pathlib import Path
import PIL.PngImagePlugin, PIL.TiffImagePlugin
from ringlet.data.images import decode_image
from ringlet.errors import DataError
content, error = Path(sys.argv[1]).read_bytes(), ""
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_image(content, (3, 32, 32), "x")
except DataError as problem:
    error = str(problem)
print(json.dumps([1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before), error]))
"""


def decoded_elsewhere(path: Path) -> tuple[int, str]:
    """Bytes of memory that decoding took, and the error."""
    words = [sys.executable, "-W", "error", "-c", PROGRAM, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True, env={**os.environ})
    num_bytes, error = json.loads(done.stdout)
    return num_bytes, error


def tiff(width: int, height: int, rows: int) -> bytes:
    """A TIFF file of one colour: every strip is the same few compressed bytes."""
    strip = zlib.compress(bytes(3 * width * rows))
    count = height // rows
    arrays = 8 + len(strip) + len(strip) % 2
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 3, arrays), (259, 3, 1, 8), (262, 3, 1, 2),
        (273, 4, count, arrays + 6), (277, 3, 1, 3), (278, 4, 1, rows), (279, 4, count, arrays + 6 + 4 * count),
    ]  # fmt: skip
    after = arrays + 6 + 8 * count
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    values = struct.pack("<3H", 8, 8, 8) + struct.pack(f"<{2 * count}I", *[8] * count, *[len(strip)] * count)
    return struct.pack("<2sHI", b"II", 42, after) + strip.ljust(arrays - 8, b"\0") + values + directory + bytes(4)


def test_a_small_file_with_very_many_pixels_takes_no_memory(tmp_path):
    content = tiff(13_000, 13_000, 130)
    assert decode_image(tiff(260, 260, 130), (3, 4, 4), "x")[1] == (260, 260), "such files are fine as such"
    (tmp_path / "x.tif").write_bytes(content + bytes(5_000_000 - len(content)))
    num_bytes, error = decoded_elsewhere(tmp_path / "x.tif")
    assert f"13000 x 13000 pixels: expected at most {MAX_PIXELS:,}" in error
    assert num_bytes < 32 * MEBIBYTE


@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "I;16"])
def test_there_is_no_second_copy_of_a_picture(tmp_path, mode):
    width, height = 5000, 4000
    PIL.Image.new(mode, (width, height)).save(tmp_path / "x.png")
    with (tmp_path / "x.png").open("ab") as file:
        file.write(bytes(1_000_000))  # or it would have too many pixels for its size
    num_bytes, error = decoded_elsewhere(tmp_path / "x.png")
    assert error == ""
    per_pixel = {"L": 1, "P": 2, "I;16": 3, "RGB": 4, "RGBA": 5}[mode]  # its own bytes, and one for a band
    assert num_bytes < per_pixel * width * height + 32 * MEBIBYTE

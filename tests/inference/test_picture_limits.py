"""Pictures with too many pixels are refused alike in files, bytes and rows; large masks are made in strips."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ringlet import Predictor
from ringlet.data import images
from ringlet.data.normalization import BYTES
from ringlet.database.rows import bytes_item, predict_rows
from ringlet.inference import scoring as painting
from ringlet.inference.description import describe
from ringlet.inference.predictor import Interpreter
from ringlet.inference.scoring import write_overlay
from ringlet.models import builder as b


def picture(height: int, width: int) -> PIL.Image.Image:
    """Coarse coloured noise."""
    values = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    return PIL.Image.fromarray(values).resize((width, height))


def encoded(image: PIL.Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def outcomes(model: Path, content: bytes, name: str) -> list[str | None]:
    """The errors for a picture as a file, as bytes, and as a row of a database, each without the picture's name."""
    Path(name).write_bytes(content)
    with Predictor(model, threads=1) as predictor:
        by_path, by_content = predictor.predict([name, content])
        [row] = predict_rows(predictor, [bytes_item(content)])
    assert row is not None
    errors = [by_path.error, by_content.error, row["error"]]
    return [error and error.partition(": ")[2] for error in errors]


@pytest.mark.parametrize(("kind", "classes_are_fine"), [("PNG", False), ("JPEG", True)])
def test_too_many_pixels_are_refused_alike_everywhere(classes, masks, monkeypatch, kind, classes_are_fine):
    content = encoded(picture(300, 200), kind)
    assert outcomes(classes, content, "x") == outcomes(masks, content, "x") == [None] * 3
    monkeypatch.setenv("RINGLET_MAX_PIXELS", "20000")
    by_class, by_mask = outcomes(classes, content, "x"), outcomes(masks, content, "x")
    assert by_mask[0] is not None
    assert "200 x 300 pixels: expected at most 20,000" in by_mask[0]
    assert "set RINGLET_MAX_PIXELS=60000" in by_mask[0]
    assert by_mask == [by_mask[0]] * 3
    assert by_class == ([None] * 3 if classes_are_fine else by_mask), "a JPEG is decoded at a fraction of its size"


@pytest.mark.parametrize("num_outputs", [1, 3, 300])
@pytest.mark.parametrize("strip", [200, 1 << 20])
@pytest.mark.parametrize("size", [(130, 90), (16, 16)])
def test_masks_in_strips_are_those_of_the_whole(monkeypatch, num_outputs, strip, size):
    spec = b.build("net", b.sigmoid(b.conv2d(b.image_input((3, 16, 16)), num_outputs, kernel=1)))
    outputs = np.random.default_rng(0).random((num_outputs, 16, 16), np.float32)
    planes = [
        np.asarray(PIL.Image.fromarray(plane).resize(size[::-1], PIL.Image.Resampling.BILINEAR)) for plane in outputs
    ]
    expected = planes[0] >= 0.5 if num_outputs == 1 else np.argmax(planes, axis=0)
    monkeypatch.setattr(images, "STRIP_PIXELS", strip)
    found = Interpreter(describe(spec, BYTES, ()), 0.5)("x", outputs, size)
    np.testing.assert_array_equal(found.mask, expected)
    assert found.share == (expected != 0).mean()


def test_overlays_are_the_same_in_strips(monkeypatch):
    values = np.asarray(picture(41, 30))
    mask = np.random.default_rng(0).integers(0, 4, (41, 30)).astype(np.uint8)
    write_overlay(Path("whole.png"), values, mask)
    monkeypatch.setattr(painting, "STRIP_PIXELS", 100)
    write_overlay(Path("strips.png"), values, mask)
    found, expected = (np.asarray(PIL.Image.open(name)) for name in ("strips.png", "whole.png"))
    np.testing.assert_array_equal(found, expected)

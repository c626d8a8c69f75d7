"""Pictures that cannot be read are left out on request, always the same ones; large clean masks are no bombs."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ringlet.data import Dataset, load_dataset
from ringlet.data.images import read_mask
from ringlet.errors import DataError

RNG = np.random.default_rng(3)


def damage_middle(path: Path) -> None:
    """Both ends stay as they are."""
    content = bytearray(path.read_bytes())
    start = content.index(b"IDAT") + 4
    content[start : start + 30] = bytes(30)
    path.write_bytes(content)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Ten pictures of two classes; of three one is no picture, one cut off, one damaged in the middle."""
    for number in range(10):
        path = tmp_path / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (12, 12, 3)).astype(np.uint8)).save(path)
    (tmp_path / "cat" / "2.png").write_bytes(b"no picture")
    cut = tmp_path / "dog" / "3.png"
    cut.write_bytes(cut.read_bytes()[:-50])
    damage_middle(tmp_path / "cat" / "4.png")
    return tmp_path


def labels(dataset: Dataset) -> list[int]:
    return dataset.train.read(np.arange(len(dataset.train)))[1].tolist()


def test_broken_pictures_are_left_out_counted_and_listed(pets: Path) -> None:
    dataset = load_dataset(f"folder:{pets}", skip_broken=True)
    assert labels(dataset) == [0, 0, 0, 1, 1, 1, 1]
    (remark,) = dataset.remarks
    assert remark.startswith("skip_broken: 3 of 10 samples are left out: ")
    for name in ("2.png", "3.png", "4.png"):
        assert f"{name}: " in remark
    assert load_dataset(f"folder:{pets}", skip_broken=True).fingerprint() == dataset.fingerprint()


def test_damage_in_the_middle_is_an_error_at_the_first_read(pets: Path) -> None:
    (pets / "cat" / "2.png").unlink()
    (pets / "dog" / "3.png").unlink()
    source = load_dataset(f"folder:{pets}").train
    with pytest.raises(DataError, match=r"4\.png: damaged image .*--skip-broken trains without such files"):
        source.read(np.arange(len(source)))


def test_a_mask_that_cannot_be_used_leaves_its_image_out(tmp_path: Path) -> None:
    for number in range(4):
        for kind in ("images", "masks"):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.new("L", (8, 8), 255).save(tmp_path / kind / f"{number}.png")
    (tmp_path / "masks" / "1.png").write_bytes(b"no picture")
    Image.new("L", (8, 16)).save(tmp_path / "masks" / "2.png")
    dataset = load_dataset(f"masks:{tmp_path}", skip_broken=True)
    assert len(dataset.train) == 2
    assert "2 of 4 samples are left out" in dataset.remarks[-1]


def test_nothing_but_broken_pictures_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="1 of 1 files cannot be read"):
        load_dataset(f"folder:{tmp_path}", skip_broken=True)


def test_unusual_bytes_at_the_end_do_no_harm(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG")
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "0.jpg").write_bytes(buffer.getvalue() + bytes(500))
    assert len(load_dataset(f"folder:{tmp_path}").train) == 1


def test_a_large_clean_mask_is_no_bomb(tmp_path: Path) -> None:
    mask = np.zeros((3000, 4000), bool)
    mask[1000:2000, 1000:3000] = True
    path = tmp_path / "mask.png"
    Image.fromarray(mask).save(path, optimize=True)
    assert path.stat().st_size < 24 << 10
    target = read_mask(path, (30, 40))
    assert target.sum() == 10 * 20


def test_a_bomb_stays_one(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    header = (9000).to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    rows = zlib.compress(bytes(9000 * (9000 // 8 + 1)))
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    with pytest.raises(DataError, match="9000 x 9000 pixels: implausible"):
        read_mask(path, (30, 40))

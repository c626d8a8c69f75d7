"""What ``ringlet datasets inspect`` finds in data with known faults."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ringlet.cli import datasets
from ringlet.data.inspection import format_of, inspect

RNG = np.random.default_rng(4)


def save(path: Path, size: tuple[int, int] = (12, 10), mode: str = "RGB", **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = RNG.integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    Image.fromarray(values).convert(mode).save(path, **options)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Many cats and a dog, one cat twice, one also in validation, one also as a dog, one broken, one turned."""
    root = tmp_path / "pets"
    for number in range(24):
        save(root / "train" / "cat" / f"{number}.png")
    save(root / "train" / "dog" / "0.png", (20, 30), "L")
    save(root / "val" / "cat" / "0.png")
    save(root / "val" / "dog" / "0.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    save(root / "train" / "cat" / "turned.jpg", exif=turned)
    cats = root / "train" / "cat"
    shutil.copy(cats / "1.png", cats / "copy.png")
    shutil.copy(cats / "2.png", root / "val" / "cat" / "leak.png")
    shutil.copy(cats / "3.png", root / "train" / "dog" / "3.png")
    (cats / "broken.png").write_bytes((cats / "5.png").read_bytes()[:-60])
    (cats / "notes.txt").write_text("no picture")
    return root


def test_every_fault_of_a_folder_is_found(pets: Path) -> None:
    found, _ = inspect(format_of(str(pets)))
    assert found.parts["train"].class_counts == (26, 2)
    assert found.parts["validation"].class_counts == (2, 1)
    assert [Path(one.path).name for one in found.broken] == ["broken.png"]
    assert found.pictures is not None
    assert found.pictures.sizes == {"12x10": 29, "20x30": 1, "10x12": 1}
    assert found.pictures.modes == {"RGB": 30, "L": 1}
    assert found.pictures.num_turned == 1
    assert found.not_read == {".txt": 1}
    same = {tuple(sorted(Path(sample).name for sample in one.samples)): one for one in found.duplicates}
    assert same.keys() == {("1.png", "copy.png"), ("2.png", "leak.png"), ("3.png", "3.png")}
    assert [names for names, one in same.items() if one.leaks] == [("2.png", "leak.png")]
    words = "\n".join(found.findings())
    for part in (
        "1 samples are in training and in another part",
        "1 files cannot be read",
        "1 samples occur with different classes",
        "3 samples are exact copies of others",
        "'cat' has 26 training samples, 'dog' 2",
        "1 pictures are turned upright",
        "1 .txt",
    ):
        assert part in words


def test_the_command_prints_a_table_json_and_a_sheet(pets: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    shown = runner.invoke(datasets.app, ["inspect", str(pets), "--sheet", str(tmp_path / "sheet.png")])
    assert shown.exit_code == 0, shown.output
    for part in ("cat", "26", "Broken: ", "Same: ", "Sizes: 12x10 (29)", "Note: 1 samples are in training"):
        assert part in shown.output
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 700
        assert len(np.unique(np.asarray(sheet))) > 100
    printed = runner.invoke(datasets.app, ["inspect", str(pets), "--json"])
    document = json.loads(printed.stdout)
    assert document["parts"]["train"]["num_samples"] == 28
    assert document["classes"] == ["cat", "dog"]


def test_masks_tell_their_values(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / "images" / f"{number}.png")
        mask = np.zeros((10, 12), np.uint8)
        mask[number:] = 255
        (tmp_path / "masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
    found, _ = inspect(format_of(f"masks:{tmp_path}"))
    assert found.pictures is not None
    assert found.pictures.mask_values == {"L: 0, 255": 2, "L: 255": 1}
    assert found.parts["train"].class_counts == (2, 3)


def test_arrays_and_tables_and_built_in_data_are_compared_by_their_values(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (6, 1, 4, 4)).astype(np.uint8)
    images[5] = images[0]
    np.savez(tmp_path / "a.npz", x_train=images, y_train=np.arange(6) % 3, x_test=images[1:2], y_test=[0])
    found, _ = inspect(format_of(str(tmp_path / "a.npz")))
    assert [one.samples for one in found.duplicates] == [("train[0]", "train[5]"), ("train[1]", "test[0]")]
    assert found.duplicates[1].leaks
    (tmp_path / "a.csv").write_text("a,b,kind\n1,2,x\n1,2,y\n3,4,x\n")
    table, _ = inspect(format_of(str(tmp_path / "a.csv"), target="kind"))
    assert table.parts["train"].class_counts == (2, 1)
    assert len(table.duplicates) == 1
    digits, _ = inspect(format_of("digits"))
    assert (digits.parts["train"].num_samples, digits.duplicates, digits.broken) == (1437, (), ())

"""Results as files: tables by their ending, masks and overlays as images."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ringlet import Predictor
from ringlet.data.images import read_mask
from ringlet.data.masks import MaskMeaning
from ringlet.errors import UsageError
from ringlet.inference.inputs import list_inputs
from ringlet.inference.scoring import Scorer, check_table, mask_image, outline, write_image, write_overlay, write_table

RECORDS = [
    {"file": "a,b.png", "class": 1, "label": 'do"g', "probability": 0.75, "error": None}
    | {"top": [{"label": 'do"g', "probability": 0.75}, {"label": "cat", "probability": 0.25}]},
    {"file": "ü.png", "class": None, "label": None, "probability": None, "top": [], "error": "ü.png: damaged"},
]


def test_csv_has_a_column_for_every_place():
    write_table(Path("t.csv"), RECORDS, top_k=2)
    with Path("t.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "class", "label", "probability", "label_2", "probability_2", "error"]
    assert (rows[0]["label"], rows[0]["label_2"], rows[0]["probability_2"]) == ('do"g', "cat", "0.25")
    assert rows[1] == dict.fromkeys(rows[0], "") | {"file": "ü.png", "error": "ü.png: damaged"}


def test_json_is_the_records():
    write_table(Path("t.json"), RECORDS, top_k=2)
    assert json.loads(Path("t.json").read_text()) == RECORDS


def test_parquet_has_types_even_where_all_is_empty():
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(Path("t.parquet"), RECORDS[1:], top_k=2)
    table = parquet.read_table("t.parquet")
    kinds = {name: str(kind) for name, kind in zip(table.schema.names, table.schema.types, strict=True)}
    assert kinds["class"] == "int64"
    assert kinds["probability"] == kinds["probability_2"] == "double"
    assert kinds["label_2"] == kinds["error"] == "string"
    assert table.to_pylist()[0]["error"] == "ü.png: damaged"


@pytest.mark.parametrize(
    ("path", "message"), [("t.txt", "ends in .csv"), ("none/t.csv", "does not exist"), ("folder.csv", "is a folder")]
)
def test_a_table_that_cannot_be_written_is_refused_early(path, message):
    Path("folder.csv").mkdir()
    with pytest.raises(UsageError, match=message):
        check_table(Path(path))


def test_a_mask_is_read_as_it_was_written():
    mask = np.zeros((20, 30), np.uint8)
    mask[5:10, 7:20] = 1
    write_image(Path("deep/er/m.png"), mask_image(mask, 2))
    np.testing.assert_array_equal(read_mask(Path("deep/er/m.png"), (20, 30))[0], mask)
    with PIL.Image.open("deep/er/m.png") as image:
        assert (image.mode, image.getextrema()) == ("L", (0, 255))
    assert [path.name for path in Path("deep/er").iterdir()] == ["m.png"]


def test_masks_of_several_classes_keep_their_numbers():
    mask = np.arange(12, dtype=np.uint8).reshape(3, 4) % 5
    write_image(Path("m.png"), mask_image(mask, 5))
    np.testing.assert_array_equal(read_mask(Path("m.png"), (3, 4), MaskMeaning.of(5)), mask)
    with PIL.Image.open("m.png") as image:
        assert image.mode == "P"
        assert len(set(image.convert("RGB").get_flattened_data())) == 5


def test_an_overlay_changes_the_object_and_nothing_else():
    picture = np.full((20, 30, 3), 200, np.uint8)
    mask = np.zeros((20, 30), np.uint8)
    mask[5:15, 5:15] = 1
    write_overlay(Path("o.png"), picture, mask)
    painted = np.asarray(PIL.Image.open("o.png"))
    np.testing.assert_array_equal(painted[mask == 0], picture[mask == 0])
    assert (painted[mask == 1] != 200).any(axis=1).all()
    assert outline(mask).sum() == 36


def test_scoring_writes_masks_and_overlays_of_files_and_arrays(masks, pictures):
    values = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16)).astype(np.uint8)
    np.savez("more.npz", x=values)
    Path("broken.png").write_bytes(b"x")
    inputs = list_inputs(["shots", "broken.png", "more.npz"], (3, 16, 16)).inputs
    done = []
    with Predictor(masks, threads=2, batch_size=3) as predictor:
        records = list(Scorer(predictor, folder=Path("out"), overlay=True).score(inputs, done.append))
    assert done == list(range(1, 14))
    assert [record["file"] for record in records] == [item.name for item in inputs]
    assert (records[10]["mask"], "broken.png" in records[10]["error"]) == (None, True)
    assert (records[0]["mask"], records[0]["overlay"]) == ("out/shot0_mask.png", "out/shot0_overlay.png")
    for record in records[:10] + records[11:]:
        with PIL.Image.open(record["mask"]) as mask, PIL.Image.open(record["overlay"]) as overlay:
            assert mask.size == overlay.size == (record["width"], record["height"])
            assert np.asarray(mask).mean() / 255 == pytest.approx(record["share"])
    outside = np.asarray(PIL.Image.open(records[11]["mask"])) == 0
    painted = np.asarray(PIL.Image.open(records[11]["overlay"]))
    np.testing.assert_array_equal(painted[outside], np.moveaxis(values[0], 0, 2)[outside])

"""Tables: what columns become, and that the same table gives the same inputs later."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ringlet.data import Dataset, load_dataset
from ringlet.data.table_schema import Schema
from ringlet.errors import DataError, UsageError

ROWS = """\
id;height;colour;weight;kind
a1;1.5;red;10;ant
a2;2.5;blue;20;bee
a3;3.5;red;30;ant
a4;4.5;green;40;cow
a5;5.5;red;50;bee
a6;6.5;blue;60;cow
"""


def table(folder: Path, text: str = ROWS, name: str = "data.csv") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return f"table:{folder / name}"


def inputs_of(dataset: Dataset) -> np.ndarray:
    return dataset.train.read(np.arange(len(dataset.train)))[0]


def test_numbers_are_standardised_and_texts_get_places(tmp_path: Path) -> None:
    dataset = load_dataset(table(tmp_path), target="kind", ignore="id")
    inputs, targets = dataset.train.read(np.arange(6))
    assert dataset.class_names == ("ant", "bee", "cow")
    assert targets.tolist() == [0, 1, 0, 2, 1, 2]
    np.testing.assert_array_equal(inputs[:2], [[1.5, 0, 0, 1, 10], [2.5, 1, 0, 0, 20]])  # blue, green, red
    normalised = dataset.normalization.apply(inputs)
    numbers = normalised[:, [0, 4]]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(numbers.std(axis=0), 1, atol=1e-6)
    np.testing.assert_array_equal(normalised[:, 1:4], inputs[:, 1:4])


def test_statistics_are_those_of_the_rows_that_are_trained_on(tmp_path: Path) -> None:
    dataset = load_dataset(table(tmp_path), target="kind", ignore="id", validation_split=0.5)
    inputs = inputs_of(dataset)
    assert len(inputs) == 3
    assert dataset.normalization.mean[0] == pytest.approx(inputs[:, 0].mean())
    assert dataset.table is not None
    assert dataset.table.fill == dataset.normalization.mean


@pytest.mark.parametrize(
    ("target", "options", "task", "num_classes"),
    [
        ("kind", {}, "classification", 3),
        ("weight", {}, "classification", 6),
        ("weight", {"targets": "regression"}, "regression", 1),
        ("height", {}, "regression", 1),
        ("height,weight", {}, "regression", 2),
    ],
)
def test_the_target_says_what_the_task_is(
    tmp_path: Path, target: str, options: dict[str, str], task: str, num_classes: int
) -> None:
    dataset = load_dataset(table(tmp_path), target=target, ignore="id", **options)
    assert (dataset.task, dataset.num_classes) == (task, num_classes)


def test_several_columns_of_zeros_and_ones_are_labels(tmp_path: Path) -> None:
    dataset = load_dataset(table(tmp_path, "x,a,b\n1,0,1\n2,1,1\n3,0,0\n"), target=("a", "b"))
    assert dataset.task == "multilabel"
    assert dataset.train.read(np.arange(3))[1].tolist() == [[0, 1], [1, 1], [0, 0]]


def test_missing_values_are_refused_or_the_mean(tmp_path: Path) -> None:
    text = ROWS.replace("a3;3.5;red", "a3;NA;").replace("a5;5.5", "a5;")
    with pytest.raises(
        DataError, match=r"values are missing in 2 columns: 'height' \(2\), 'colour' \(1\).*missing impute"
    ):
        load_dataset(table(tmp_path, text), target="kind", ignore="id")
    dataset = load_dataset(table(tmp_path, text), target="kind", ignore="id", missing="impute")
    inputs = inputs_of(dataset)
    known = np.array([1.5, 2.5, 4.5, 6.5])
    assert inputs[2].tolist() == pytest.approx([known.mean(), 0, 0, 0, 30])
    assert dataset.normalization.std[0] == pytest.approx(known.std())


def test_a_test_file_is_read_with_what_training_knew(tmp_path: Path) -> None:
    table(tmp_path, ROWS.replace("blue", "pink"), "other.csv")
    dataset = load_dataset(table(tmp_path), target="kind", ignore="id", test_path=tmp_path / "other.csv")
    assert dataset.test is not None
    assert dataset.test.read(np.array([1]))[0].tolist() == [[2.5, 0, 0, 0, 20]]
    assert "which count as none of them: 'colour' in 2 rows" in dataset.remarks[-1]


def test_a_folder_may_hold_the_parts(tmp_path: Path) -> None:
    for name in ("train.csv", "val.csv", "test.csv"):
        table(tmp_path, ROWS, name)
    dataset = load_dataset(f"table:{tmp_path}", target="kind", ignore="id")
    assert [len(part) for part in (dataset.train, dataset.validation, dataset.test) if part] == [6, 6, 6]


def test_parquet_and_arrow_give_what_csv_gives(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, feather, parquet

    expected = load_dataset(table(tmp_path), target="kind", ignore="id")
    content = csv.read_csv(tmp_path / "data.csv", parse_options=csv.ParseOptions(delimiter=";"))
    content = content.set_column(2, "colour", content.column("colour").dictionary_encode())
    parquet.write_table(content, tmp_path / "data.parquet")
    feather.write_feather(content, str(tmp_path / "data.arrow"))
    assert isinstance(content, arrow.Table)
    for name in ("data.parquet", "data.arrow"):
        found = load_dataset(f"table:{tmp_path / name}", target="kind", ignore="id")
        np.testing.assert_array_equal(inputs_of(found), inputs_of(expected))
        assert found.class_names == expected.class_names


def test_a_schema_survives_a_model_file(tmp_path: Path) -> None:
    schema = load_dataset(table(tmp_path), target="kind", ignore="id").table
    assert schema is not None
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    for wrong in ({}, [], {**schema.to_dict(), "task": "x"}, {**schema.to_dict(), "fill": [1.0]}, {"features": 3}):
        with pytest.raises(ValueError, match="table"):
            Schema.from_dict(wrong)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ROWS, {}, "which column is to be predicted.*one of id, height, colour, weight, kind"),
        (ROWS, {"target": "type"}, "has no column 'type'"),
        (ROWS, {"target": "kind", "ignore": "idd"}, "has no column 'idd'"),
        ("a,b\n" + "".join(f"t{n},1\n" for n in range(50)), {"target": "b"}, "50 different texts in 50 rows"),
        ("a,b\n1,2\n1\n", {"target": "b"}, "line 3: 1 values for 2 columns"),
        ("1,2\n3,4\n", {"target": "b"}, "the first row has numbers only"),
        ("a,a\n3,4\n", {"target": "a"}, "'a' is empty or stands twice"),
        ("a,b\n", {"target": "b"}, "a header and no rows"),
        ("", {"target": "b"}, "is empty"),
        ("a,b\n1,\n", {"target": "b"}, "1 rows have no value in the target 'b'"),
        ("b\n1\n", {"target": "b"}, "no columns beside the target"),
        ("a,b\n,1\n,2\n", {"target": "b"}, "column 'a' has no values"),
        ('a,b\n"1,2\n', {"target": "b"}, "not a readable CSV file"),
    ],
)
def test_tables_that_make_no_sense_are_refused(
    tmp_path: Path, text: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        load_dataset(table(tmp_path, text), **options)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(DataError, match="not a text in UTF-8"):
        load_dataset(f"table:{tmp_path / 'data.csv'}", target="b")
    (tmp_path / "data.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load_dataset(f"table:{tmp_path / 'data.parquet'}", target="b")

"""Own files on the command line: a table that is trained on, predicted and evaluated; data that have moved."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ringlet.training.loaded_model import load_model

RNG = np.random.default_rng(2)


@pytest.fixture
def flowers() -> Path:
    """A table whose classes follow from a number and a text; one number is missing."""
    path = Path("flowers.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "length", "colour", "kind"])
        for row in range(120):
            kind = row % 3
            length = "" if row == 7 else 1000 + 10 * (kind == 2) + RNG.normal()
            writer.writerow([f"f{row}", length, "red" if kind == 0 else "blue", ("rose", "iris", "lily")[kind]])
    return path


def test_a_table_is_learned_predicted_and_evaluated(flowers: Path, ringlet: Callable[..., Any]) -> None:
    options = ["--target", "kind", "--dataset.ignore", "id", "--dataset.missing", "impute", "--num-epochs", "12"]
    trained = ringlet(
        "train", "--dataset", f"table:{flowers}", *options, "--run-dir", "run", "--learning-rate", "0.003"
    )
    assert trained.code == 0, trained.stderr
    model = load_model("run")
    assert model.spec.name == "simplemlp"
    assert model.labels == ("iris", "lily", "rose")
    assert ringlet("predict", "run", str(flowers), "-o", "found.csv").code == 0
    with flowers.open() as rows, Path("found.csv").open() as found:
        pairs = list(zip(csv.DictReader(rows), csv.DictReader(found), strict=True))
    assert np.mean([row["kind"] == prediction["label"] for row, prediction in pairs]) > 0.95
    moved = flowers.rename("elsewhere.csv")
    paths = ["--dataset-path", str(moved), "--dataset-test-path", str(moved)]
    evaluated = ringlet("evaluate", "run", *paths, "--json")
    assert evaluated.code == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["test"]["accuracy"] > 0.95


def test_a_folder_that_moved_is_named_again(ringlet: Callable[..., Any]) -> None:
    for number in range(12):
        path = Path("before", ("train", "test")[number % 2], ("cat", "dog")[number // 2 % 2], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (16, 16, 3)).astype(np.uint8)).save(path)
    options = ["--model", "simplecnn", "--num-epochs", "1", "--validation-split", "0", "--run-dir", "run"]
    assert ringlet("train", "--dataset", "folder:before", *options).code == 0
    Path("before").rename("after")
    refused = ringlet("evaluate", "run")
    assert refused.code == 1
    assert "before is not a folder" in refused.stderr
    evaluated = ringlet("evaluate", "run", "--dataset-path", "after", "--json")
    assert evaluated.code == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["num_samples"] == 6

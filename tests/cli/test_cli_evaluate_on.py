"""``ringlet evaluate --on``: which samples a model is evaluated on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that differ in brightness, in ``train`` and ``val``; and a folder of others."""
    folder, generator = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for part, count in (("data/train", 8), ("data/val", 4), ("other", 3)):
        for name, level in (("dark", 40), ("light", 200)):
            (folder / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(level - 40, level + 40, (8, 8, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    return folder


@pytest.fixture
def trained(ringlet, photos: Path) -> Path:
    options = "--model simplecnn --num-epochs 2 --batch-size 8 --kernels reference --run-dir run"
    outcome = ringlet("train", "--dataset", f"folder:{photos / 'data'}", *options.split())
    assert outcome.code == 0, outcome.stderr
    assert "Test:" not in outcome.stdout
    return Path("run")


def evaluated(ringlet, *arguments: str) -> dict[str, object]:
    outcome = ringlet("evaluate", "run", "--kernels", "reference", "--batch-size", "8", "--json", *arguments)
    assert outcome.code == 0, outcome.stderr
    return json.loads(outcome.stdout)


def test_a_run_without_test_data_is_evaluated_on_what_it_was_validated_on(ringlet, trained: Path) -> None:
    events = [json.loads(line) for line in (trained / "events.ndjson").read_text().splitlines()]
    last = [event["figures"] for event in events if event["event"] == "epoch_finished"][-1]
    found = evaluated(ringlet)
    assert (found["on"], found["num_samples"]) == ("validation", 8)
    assert found["validation"] == {name.removeprefix("val_"): last[name] for name in last if "val_" in name}
    assert evaluated(ringlet, "--on", "validation")["validation"] == found["validation"]


def test_training_data_and_other_files_serve_too(ringlet, trained: Path, photos: Path) -> None:
    assert trained.is_dir()
    assert evaluated(ringlet, "--on", "train")["num_samples"] == 16
    other = evaluated(ringlet, "--on", str(photos / "other"))
    assert (other["num_samples"], "given" in other) == (6, True)


def test_what_is_not_there_is_explained(ringlet, trained: Path, photos: Path) -> None:
    assert trained.is_dir()
    for on, words in (
        ("test", "has no test data; there are validation, train: name one with --on"),
        ("tset", "expected test, validation, train, or a folder or file"),
        (str(photos / "data"), "it has training and validation data. Name the folder of one of them"),
    ):
        outcome = ringlet("evaluate", "run", "--on", on)
        assert outcome.code != 0
        assert words in " ".join(outcome.stderr.split())

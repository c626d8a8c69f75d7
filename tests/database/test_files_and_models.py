"""Files below one directory, models by their hash, rows as PNG files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from pictures import HOSTILE, ODD_CHANNELS, SHOTS

from ringlet.database.models import NewModel, PredictorCache, fingerprint, open_predictor, stored_artifact
from ringlet.database.rows import (
    COLUMNS,
    AllowedDirectory,
    bytes_item,
    encode_mask,
    file_item,
    plain_text,
    predict_rows,
)
from ringlet.errors import DataError, ModelFileError, UsageError
from ringlet.inference import Artifact, Predictor
from ringlet.inference.scoring import mask_image, write_image


@pytest.fixture
def allowed(own_folder):
    """A directory with a file, a file beside it, and links in and out."""
    inner = own_folder / "allowed"
    (inner / "sub").mkdir(parents=True)
    (inner / "sub/a.png").write_bytes(b"inside")
    (own_folder / "secret.png").write_bytes(b"outside")
    (own_folder / "allowed-too").mkdir()
    (own_folder / "allowed-too/a.png").write_bytes(b"outside")
    (inner / "out.png").symlink_to(own_folder / "secret.png")
    (inner / "away").symlink_to(own_folder)
    (inner / "near.png").symlink_to("sub/a.png")
    os.mkfifo(inner / "pipe.png")
    return AllowedDirectory(str(inner))


@pytest.mark.parametrize(
    "path", ["sub/a.png", "near.png", "./sub/../sub/a.png", "{}/sub/a.png", "away/allowed/near.png"]
)
def test_files_below_the_directory_are_read(allowed, path):
    assert allowed.read(path.format(allowed.path)) == b"inside"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.png",
        "/etc/passwd",
        "out.png",
        "away/secret.png",
        "{}/../secret.png",
        "{}-too/a.png",
        "",
        ".",
        "../no",
    ],
)
def test_what_lies_outside_is_refused_whether_it_exists_or_not(allowed, path):
    with pytest.raises(DataError, match="outside of the allowed directory"):
        allowed.read(path.format(allowed.path))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sub", "not a regular file"),
        ("pipe.png", "not a regular file"),
        ("no.png", "No such file"),
        ("a\0b", "zero byte"),
    ],
)
def test_only_regular_files_are_read(allowed, path, message):
    with pytest.raises(DataError, match=message):
        allowed.read(path)


def test_a_link_that_appears_after_the_check_is_not_followed(allowed, own_folder, monkeypatch):
    resolve = os.path.realpath

    def swap(path, **options):
        found = resolve(path, **options)
        if found.endswith("sub/a.png"):
            Path(found).unlink()
            Path(found).symlink_to(own_folder / "secret.png")
        return found

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(DataError, match="cannot be read"):
        allowed.read("sub/a.png")


def test_the_fingerprint_knows_where_the_network_ends():
    parts = [Artifact("openvino", b"ab", b"c"), Artifact("openvino", b"a", b"bc"), Artifact("onnx", b"ab", b"c")]
    assert len({fingerprint(artifact) for artifact in parts}) == 3


def test_a_row_that_was_changed_is_no_model(new_model):
    model = new_model("cars", "classes.xml")
    network, weights = model.artifact.network, model.artifact.weights
    assert stored_artifact("it", model.sha256, "openvino", network, weights) == model.artifact
    for changed in ((b"x" + network[1:], weights), (network, weights[:-1]), (network, None)):
        with pytest.raises(ModelFileError, match="not what was installed"):
            stored_artifact("it", model.sha256, "openvino", *changed)
    with pytest.raises(ModelFileError, match="of kind 'torch'"):
        stored_artifact("it", model.sha256, "torch", network, weights)


def test_programs_are_not_stored(own_folder):
    for name in ("net.py", "net.safetensors", "net.keras"):
        Path(name).touch()
    for name in ("net.py", "net.keras"):
        with pytest.raises(UsageError, match="may hold a program"):
            NewModel.read(name, "cars")


@pytest.mark.parametrize("file", ["classes.xml", "kinds.onnx", "masks.safetensors"])
def test_a_model_in_memory_predicts_like_its_file(models, new_model, file):
    with Predictor(models / file, threads=1) as expected, open_predictor(new_model("x", file).artifact) as found:
        pairs = zip(expected.predict(SHOTS), found.predict(SHOTS), strict=True)
        for one, other in pairs:
            assert one.class_index == other.class_index
            assert np.array_equal(one.probabilities, other.probabilities) or one.probabilities is None
            assert np.array_equal(one.mask, other.mask) or one.mask is None


@pytest.mark.parametrize("num_classes", [2, 3, 256, 300])
def test_masks_are_the_files_that_predict_writes(num_classes):
    kind = np.uint8 if num_classes <= 256 else np.uint16
    mask = np.random.default_rng(0).integers(0, num_classes, (9, 7)).astype(kind)
    write_image(Path("mask.png"), mask_image(mask, num_classes))
    assert encode_mask(mask, num_classes) == Path("mask.png").read_bytes()


def test_hostile_rows_have_errors_and_harm_no_other(models):
    items = [bytes_item(image) for image in (SHOTS[0], *HOSTILE.values(), None, *ODD_CHANNELS, SHOTS[1])]
    with Predictor(models / "classes.xml", threads=1) as predictor:
        rows = predict_rows(predictor, items)
        alone = predict_rows(predictor, [items[0], items[-1]])
    assert [rows[0], rows[-1]] == alone
    bad, odd = rows[1 : 1 + len(HOSTILE)], rows[2 + len(HOSTILE) : -1]
    assert rows[1 + len(HOSTILE)] is None
    for row, reason in zip(bad, HOSTILE, strict=True):
        assert reason in row["error"]
        assert {row[name] for name in COLUMNS[:-1]} == {None}
    assert [row["error"] for row in odd] == [None] * len(ODD_CHANNELS)


def test_a_failure_that_nobody_foresaw_stays_in_its_row(models, monkeypatch):
    with Predictor(models / "classes.xml", threads=1) as predictor:
        decode = predictor.description.preprocessing.decode
        outcome = predict_rows(predictor, [bytes_item(SHOTS[0])])

        def fail(self, content, what):
            if content == SHOTS[1]:
                raise MemoryError("no\nmore")
            return decode(content, what)

        monkeypatch.setattr(type(predictor.description.preprocessing), "decode", fail)
        rows = predict_rows(predictor, [bytes_item(SHOTS[0]), bytes_item(SHOTS[1])])
    assert rows[0] == outcome[0]
    assert rows[1]["error"] == "image: MemoryError: no?more"


def test_a_path_that_may_not_be_read_is_an_error_of_its_row(allowed, models):
    with Predictor(models / "masks.xml", threads=1) as predictor:
        [row, nothing] = predict_rows(predictor, [file_item("../secret.png", allowed), file_item(None, allowed)])
    assert (row["error"], nothing) == ("../secret.png: outside of the allowed directory", None)


def test_errors_are_texts_that_every_database_can_store():
    assert plain_text("a\0b\ud800c") == "a?b?c"
    assert len(plain_text("x" * 1000)) == 500


def test_the_cache_loads_each_model_once_and_keeps_the_last_ones(new_model):
    found = {model.sha256: model.artifact for model in map(new_model, "abc", ("classes.xml", "other.xml", "masks.xml"))}
    first, second, third = found
    cache = PredictorCache(threads=1, batch_size=4, capacity=2)
    for sha256 in (first, second, first, first, third, first):
        cache.get(sha256, lambda sha256=sha256: found[sha256])
    assert cache.num_loads == 3
    assert (first in cache, second in cache, third in cache) == (True, False, True)
    cache.close()

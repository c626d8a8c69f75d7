"""Predictor: pictures of any kind in, results in order out; a bad picture is its own problem; threads may share it."""

from __future__ import annotations

import io
import re
import struct
import subprocess
import sys
import threading
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import ringlet
from ringlet import Predictor, load_model
from ringlet.data.images import read_image
from ringlet.errors import DataError, UsageError
from ringlet.inference import Artifact, Named


def test_files_contents_and_arrays_give_the_same_results(classes, pictures):
    arrays = [np.moveaxis(read_image(path, (3, 12, 16)), 0, 2) for path in pictures]
    with Predictor(classes, threads=1) as predictor:
        by_path = predictor.predict(pictures)
        by_content = predictor.predict([path.read_bytes() for path in pictures])
        by_array = predictor.predict(arrays)
        first_channels = predictor.predict(np.stack([np.moveaxis(array, 2, 0) for array in arrays]))
    expected = [result.probabilities.tolist() for result in by_path]
    for results in (by_content, by_array, first_channels):
        assert [result.probabilities.tolist() for result in results] == expected
    assert [result.name for result in by_path] == [str(path) for path in pictures]
    assert len({tuple(row) for row in expected}) == len(pictures)


def test_results_are_those_of_the_training_engine(classes, pictures):
    images = np.stack([read_image(path, (3, 12, 16)) for path in pictures])
    model = load_model(classes, batch_size=32)
    results = Predictor(classes, threads=1).predict(pictures)
    np.testing.assert_array_equal([result.probabilities for result in results], model.predict(images))
    assert [result.label for result in results] == model.classify(images)


def test_a_prediction_has_class_label_and_probabilities(classes, pictures):
    [result] = Predictor(classes, threads=1).predict(pictures[0])
    assert result.error is None
    assert result.mask is None
    assert result.class_index == int(result.probabilities.argmax())
    assert result.label == ("cat", "dog", "cow")[result.class_index]
    assert result.probability == float(result.probabilities.max())
    assert result.probabilities.sum() == pytest.approx(1.0, abs=1e-6)
    top = result.top(2)
    assert top[0] == (result.label, result.probability)
    assert top[1][1] == float(np.sort(result.probabilities)[1])


def test_a_mask_has_the_size_of_its_picture(masks, pictures):
    results = Predictor(masks, threads=1, threshold=0.4).predict(pictures)
    for path, result in zip(pictures, results, strict=True):
        with PIL.Image.open(path) as image:
            assert result.mask.shape == (image.height, image.width)
        assert set(np.unique(result.mask)) <= {0, 1}
        assert result.share == pytest.approx(result.mask.mean())


def test_a_mask_at_the_networks_size_is_the_decision_of_the_network(masks, png):
    content = png(16, 16)
    predictor = Predictor(masks, threads=1)
    values, _ = predictor.decode(content)
    outputs = predictor.outputs(values[None])[0, 0]
    for threshold in (0.3, 0.5, 0.62):
        [result] = Predictor(masks, threads=1, threshold=threshold).predict(content)
        np.testing.assert_array_equal(result.mask, outputs >= threshold)


def test_masks_of_several_classes_hold_the_most_probable_one(kinds, png):
    predictor = Predictor(kinds, threads=1)
    values, _ = predictor.decode(png(16, 16))
    [small, large] = predictor.predict([png(16, 16), png(40, 25)])
    np.testing.assert_array_equal(small.mask, predictor.outputs(values[None])[0].argmax(axis=0))
    assert large.mask.shape == (40, 25)
    assert large.mask.max() <= 2


def test_order_is_kept_on_several_threads_whatever_the_batch(classes, pictures):
    expected = [result.probabilities.tolist() for result in Predictor(classes, threads=1).predict(pictures)]
    with Predictor(classes, threads=3, batch_size=2) as predictor:
        streamed = list(predictor.stream(path for path in pictures * 5))
    assert [result.name for result in streamed] == [str(path) for path in pictures * 5]
    assert [result.probabilities.tolist() for result in streamed] == expected * 5


def test_a_stream_asks_for_no_more_than_it_needs(classes, png):
    content, asked = png(12, 16), []

    def endless():
        while True:
            asked.append(1)
            yield content

    for threads in (1, 2):
        asked.clear()
        with Predictor(classes, threads=threads, batch_size=2) as predictor:
            stream = predictor.stream(endless())
            assert next(stream).error is None
            stream.close()
        assert len(asked) <= 2 * (2 * threads + 2)


# -- what is wrong with one picture -----------------------------------------------------------------------------------
def header_only(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


HOSTILE = {
    "no bytes": (b"", "no bytes"),
    "not an image": (b"select * from users; --", "not a readable image"),
    "huge header": (header_only(50_000, 50_000), "50000|readable"),
    "plausible header": (header_only(3_000, 3_000), "damaged"),
    "zero size": (header_only(0, 0), "image"),
    "missing file": (Path("nowhere.png"), "nowhere.png"),
    "folder": (Path(), "not a regular file"),
    "path with a zero": ("a\0b.png", "image|null|path"),
    "no picture": (None, "NoneType"),
    "wrong channels": (np.zeros((12, 16, 2), np.uint8), "expected"),
    "fractions": (np.full((12, 16, 3), 0.5), "fractions"),
    "values out of range": (np.full((12, 16, 3), 300), "0 to 255"),
    "texts": (np.full((12, 16, 3), "x"), "expected numbers"),
    "nothing": (np.zeros((0, 16, 3), np.uint8), "expected"),
}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bad_picture_is_its_own_problem(classes, pictures, threads):
    good = [path.read_bytes() for path in pictures[:2]]
    truncated = good[0][: len(good[0]) // 2]
    bad = [content for content, _ in HOSTILE.values()]
    expected = [result.probabilities.tolist() for result in Predictor(classes, threads=1).predict(good)]
    with Predictor(classes, threads=threads, batch_size=4) as predictor:
        results = predictor.predict([good[0], *bad, truncated, good[1]])
    assert [result.error is None for result in results] == [True, *[False] * (len(bad) + 1), True]
    assert [results[0].probabilities.tolist(), results[-1].probabilities.tolist()] == expected
    assert all(result.label is None and result.probabilities is None for result in results[1:-1])


@pytest.mark.parametrize("case", HOSTILE)
def test_an_error_says_what_is_wrong(classes, case):
    content, message = HOSTILE[case]
    [result] = Predictor(classes, threads=1).predict([Named("row 7", content)])
    assert re.search(message, result.error), result.error


def test_a_lying_header_costs_no_memory(classes):
    predictor = Predictor(classes, threads=1)
    predictor.predict(header_only(30, 30))
    tracemalloc.start()
    [result] = predictor.predict(header_only(50_000, 50_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.error is not None
    assert peak < 4_000_000


def test_decode_raises_what_predict_reports(classes):
    predictor = Predictor(classes, threads=1)
    with pytest.raises(DataError, match="row 3: has no bytes"):
        predictor.decode(b"", "row 3")
    values, size = predictor.decode(header_to_picture())
    assert (values.shape, values.dtype, size) == ((12, 16, 3), np.uint8, (50, 70))


def header_to_picture() -> bytes:
    stream = io.BytesIO()
    PIL.Image.new("LA", (70, 50)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_pictures_of_any_colours_are_taken(classes, mode, own_folder):
    image = PIL.Image.new("I;16", (20, 30)) if mode == "I;16" else PIL.Image.new(mode, (20, 30))
    path = own_folder / ("x.tif" if mode == "CMYK" else "x.png")
    image.save(path)
    [result] = Predictor(classes, threads=1).predict(path)
    assert result.error is None


# -- many callers -----------------------------------------------------------------------------------------------------
def test_eight_threads_share_an_openvino_model(exports, png):
    contents = [png(12, 16, seed) for seed in range(24)]
    with Predictor(exports / "classes.xml", threads=2, batch_size=5) as predictor:
        expected = [result.probabilities.tolist() for result in predictor.predict(contents)]
        found: dict[int, list] = {}

        def work(number: int) -> None:
            results = [predictor.predict(contents[number:] + contents[:number]) for _ in range(4)]
            found[number] = [[result.probabilities.tolist() for result in run] for run in results]

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for number in range(8):
        assert found[number] == [expected[number:] + expected[:number]] * 4


def test_a_sample_does_not_depend_on_the_batch_it_is_in(exports, png):
    contents = [png(12, 16, seed) for seed in range(7)]
    alone = [Predictor(exports / "classes.xml", threads=1).predict(content)[0] for content in contents]
    together = Predictor(exports / "classes.xml", threads=1, batch_size=7).predict(contents)
    for one, other in zip(alone, together, strict=True):
        assert one.probabilities.tolist() == other.probabilities.tolist()


def test_a_model_in_memory_is_as_good_as_one_in_files(exports, png):
    artifact = Artifact.find(exports / "masks.xml")
    from_files, in_memory = Predictor(artifact, threads=1), Predictor(artifact.loaded(), threads=1)
    assert artifact.loaded().sha256() == artifact.sha256()
    assert in_memory.description == from_files.description
    [one], [other] = from_files.predict(png(30, 40)), in_memory.predict(png(30, 40))
    np.testing.assert_array_equal(one.mask, other.mask)


def test_signals_are_harmless_after_models_were_closed(exports):
    program = f"""
import gc, signal
from ringlet import Predictor
for name in ("classes", "masks"):
    models = [Predictor({str(exports)!r} + f"/{{name}}.xml", threads=1) for _ in range(2)]
    while models:
        models.pop(0).close()
        gc.collect()
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""
    folder = Path(ringlet.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "handled\n", "")


def test_importing_the_predictor_loads_no_framework_and_no_command_line():
    code = "import ringlet, sys; ringlet.Predictor; print(*sys.modules)"
    environment = {"PYTHONPATH": str(Path(ringlet.__file__).parents[1]), "PATH": ""}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True)
    heavy = {"torch", "tensorflow", "keras", "openvino", "onnx", "onnxruntime", "typer", "rich", "pydantic", "mpi4py"}
    assert not heavy & set(loaded.stdout.split())


# -- what concerns all ------------------------------------------------------------------------------------------------
def test_a_closed_predictor_says_so(classes, pictures):
    with Predictor(classes, threads=2) as predictor:
        predictor.predict(pictures)
    with pytest.raises(UsageError, match="closed"):
        predictor.predict(pictures)
    predictor.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threads": 0}, "threads = 0"), ({"batch_size": True}, "batch_size"), ({"threshold": 1.5}, "threshold = 1.5")],
)
def test_nonsense_is_refused(classes, options, message):
    with pytest.raises(UsageError, match=message):
        Predictor(classes, **options)


def test_outputs_that_are_no_numbers_are_an_error_of_the_picture(classes, pictures, monkeypatch):
    predictor = Predictor(classes, threads=1)
    monkeypatch.setattr(predictor._runtime, "run", lambda values: np.full((len(values), 3), np.nan, np.float32))
    assert "not finite" in predictor.predict(pictures[0])[0].error


def test_nothing_in_nothing_out(classes):
    assert Predictor(classes, threads=2).predict([]) == []

"""``ringlet predict`` as a user sees it, alone and with workers."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

import ringlet as package
from ringlet.comm.environments import VARIABLES
from ringlet.data.normalization import BYTES
from ringlet.data.palette import COLOURS
from ringlet.inference.description import describe
from ringlet.models import builder as b
from ringlet.models.files import save_model
from ringlet.models.initializers import initial_values

TIMEOUT = 120


@pytest.fixture
def models():
    """A classifier and a segmentation, neither trained."""
    x = b.relu(b.conv2d(b.image_input((3, 12, 12)), 4, kernel=3))
    save("classes.safetensors", b.build("classes", b.softmax(b.dense(b.flatten(x), 3))), ["cat", "dog", "cow"])
    x = b.relu(b.conv2d(b.image_input((3, 12, 12)), 4, kernel=3, padding="same"))
    save("masks.safetensors", b.build("masks", b.sigmoid(b.conv2d(x, 1, kernel=1))), ["object"])


def save(name, spec, labels):
    tensors = {info.name: initial_values(info, 2, "float32") for info in (*spec.parameters, *spec.state)}
    metadata = {"labels": json.dumps(labels), "normalization": json.dumps(BYTES.to_dict())}
    save_model(Path(name), spec, tensors, metadata)


@pytest.fixture
def shots(models):
    """Seven pictures of different sizes in two folders."""
    rng = np.random.default_rng(0)
    Path("shots/more").mkdir(parents=True)
    for index in range(7):
        values = rng.integers(0, 256, (20 + index, 30 - index, 3)).astype(np.uint8)
        PIL.Image.fromarray(values).save(f"shots/{'more/' if index > 4 else ''}shot{index}.png")
    return sorted(str(path) for path in Path("shots").rglob("*.png"))


def test_classes_are_a_table(ringlet, shots):
    outcome = ringlet("predict", "classes.safetensors", "shots", "--top-k", "2")
    assert outcome.code == 0, outcome.stderr
    rows = [line for line in outcome.stdout.splitlines() if ".png" in line]
    assert [row.split()[1] for row in rows] == shots
    assert all(row.count("%") == 2 for row in rows)
    assert "7 images predicted" in outcome.stderr


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_classes_go_to_a_file_by_its_ending(ringlet, shots, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    outcome = ringlet("predict", "classes.safetensors", "shots", "-o", f"out.{ending}")
    assert (outcome.code, outcome.stdout) == (0, f"Predictions: out.{ending}\n")
    if ending == "csv":
        with Path("out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    elif ending == "json":
        rows = json.loads(Path("out.json").read_text())
    else:
        rows = __import__("pyarrow.parquet").parquet.read_table("out.parquet").to_pylist()
    assert [row["file"] for row in rows] == shots
    assert {row["label"] for row in rows} <= {"cat", "dog", "cow"}


def test_masks_and_overlays_go_to_a_folder(ringlet, shots):
    outcome = ringlet("predict", "masks.safetensors", "shots", "-o", "out", "--overlay", "--threshold", "0.4")
    assert (outcome.code, outcome.stdout) == (0, "Masks: out\n")
    written = {path.relative_to("out").as_posix() for path in Path("out").rglob("*.png")}
    stems = [Path(shot).relative_to("shots").with_suffix("").as_posix() for shot in shots]
    assert written == {f"{stem}{end}.png" for stem in stems for end in ("_mask", "_overlay")}
    with PIL.Image.open("shots/shot3.png") as shot, PIL.Image.open("out/shot3_mask.png") as mask:
        assert shot.size == mask.size


def test_masks_without_a_folder_are_a_table_of_shares(ringlet, shots):
    outcome = ringlet("predict", "masks.safetensors", "shots/shot0.png")
    assert "Object" in outcome.stdout
    assert "30" in outcome.stdout.split("shot0.png")[1]
    assert not Path("out").exists()


@pytest.fixture
def scenes(shots):
    """A segmentation of four classes."""
    x = b.relu(b.conv2d(b.image_input((3, 12, 12)), 4, kernel=3, padding="same"))
    spec = b.build("scenes", b.softmax(b.conv2d(x, 4, kernel=1)))
    save("scenes.safetensors", spec, ["background", "road", "car", "tree"])


def test_masks_of_several_classes_have_shares_by_name_in_table_and_file(ringlet, scenes):
    Path("shots/bad.png").write_bytes(b"x")
    outcome = ringlet("predict", "scenes.safetensors", "shots", "--csv", "shares.csv", "-o", "out")
    assert (outcome.code, outcome.stdout) == (1, "Masks: out\nTable: shares.csv\n")
    with Path("shares.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ["background", "road", "car", "tree"]
    assert list(rows[0]) == [
        "file",
        "width",
        "height",
        "share",
        "mask",
        "overlay",
        *(f"share: {n}" for n in names),
        "error",
    ]
    assert "bad.png" in rows[0]["error"]
    for row in rows[1:]:
        with PIL.Image.open(row["mask"]) as image:
            assert (image.mode, tuple(image.getpalette()[:12])) == ("P", tuple(COLOURS[:4].ravel().tolist()))
            counts = np.bincount(np.asarray(image).ravel(), minlength=4) / (image.width * image.height)
        assert [float(row[f"share: {name}"]) for name in names] == pytest.approx(counts)


def test_a_table_of_shares_names_the_largest_ones(ringlet, scenes):
    outcome = ringlet("predict", "scenes.safetensors", "shots/shot0.png")
    shown = outcome.stdout.split("Share of pixels")[1]
    document = json.loads(ringlet("predict", "scenes.safetensors", "shots/shot0.png", "--json").stdout)
    shares = document["predictions"][0]["shares"]
    assert sum(shares.values()) == pytest.approx(1.0)
    largest = max(shares, key=shares.get)
    assert f"{largest} {100 * shares[largest]:.2f}%" in shown


def test_masks_go_to_a_table_by_its_ending(ringlet, scenes):
    outcome = ringlet("predict", "scenes.safetensors", "shots", "-o", "shares.json")
    assert (outcome.code, outcome.stdout) == (0, "Predictions: shares.json\n")
    assert [len(record["shares"]) for record in json.loads(Path("shares.json").read_text())] == [4] * 7


def test_predictions_are_averaged_over_mirrored_pictures(ringlet, shots):
    def probabilities(*more):
        return json.loads(ringlet("predict", "classes.safetensors", "x.npz", "--top-k", "3", "--json", *more).stdout)

    values = np.random.default_rng(0).integers(0, 256, (1, 3, 12, 12)).astype(np.uint8)
    found = []
    for images in (values, values[..., ::-1]):
        np.savez("x.npz", x=images)
        found.append({one["label"]: one["probability"] for one in probabilities()["predictions"][0]["top"]})
    mean = {one["label"]: one["probability"] for one in probabilities("--tta", "flip")["predictions"][0]["top"]}
    assert mean == {label: pytest.approx((found[0][label] + found[1][label]) / 2, rel=1e-5) for label in mean}


def test_bad_pictures_are_reported_and_skipped_and_the_exit_code_says_so(ringlet, shots):
    Path("shots/shot1.png").write_bytes(Path("shots/shot1.png").read_bytes()[:60])
    Path("shots/zero.jpg").touch()
    outcome = ringlet("predict", "classes.safetensors", "shots", "none.png", "--json")
    document = json.loads(outcome.stdout)
    assert outcome.code == 1
    assert (document["num_inputs"], document["num_errors"]) == (9, 3)
    errors = {entry["file"]: entry["error"] for entry in document["predictions"] if entry["error"] is not None}
    assert set(errors) == {"shots/shot1.png", "shots/zero.jpg", "none.png"}
    assert outcome.stderr.count("skipped: ") == 3
    assert "Traceback" not in outcome.stderr


def test_only_so_many_errors_are_told_one_by_one(ringlet, shots):
    Path("bad").mkdir()
    for index in range(25):
        Path(f"bad/{index:02d}.png").write_bytes(b"x")
    outcome = ringlet("predict", "classes.safetensors", "bad", "shots", "-o", "out.csv")
    assert outcome.code == 1
    assert outcome.stderr.count("skipped: bad/") == 20
    assert "skipped: 5 more images" in outcome.stderr


def test_paths_come_from_stdin(ringlet, shots, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(reversed(shots)) + "\n"))
    outcome = ringlet("predict", "classes.safetensors", "-", "--json")
    assert [entry["file"] for entry in json.loads(outcome.stdout)["predictions"]] == shots[::-1]


def test_arrays_and_batches_do_not_change_results(ringlet, shots):
    values = np.random.default_rng(3).integers(0, 256, (9, 12, 12, 3)).astype(np.uint8)
    np.savez("some.npz", images=values)
    found = []
    for options in (("--batch-size", "1", "--threads", "1"), ("--batch-size", "4", "--threads", "3")):
        outcome = ringlet("predict", "classes.safetensors", "some.npz", "--json", *options)
        found.append([entry["probability"] for entry in json.loads(outcome.stdout)["predictions"]])
    assert found[0] == found[1]
    assert len(found[0]) == 9


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("classes.safetensors",), 2, "Missing argument 'INPUTS"),
        (("none", "shots"), 1, "'none' does not exist"),
        (("shots/shot0.png", "shots"), 2, "no model that can be used"),
        (("classes.safetensors", "none.png"), 1, "nothing to predict"),
        (("classes.safetensors", "shots", "-o", "out.txt"), 2, "ends in .csv, .json, .parquet"),
        (("classes.safetensors", "shots", "-o", "none/out.csv"), 2, "does not exist"),
        (("classes.safetensors", "shots", "--overlay"), 2, "predicts classes, not masks"),
        (("masks.safetensors", "shots", "--overlay"), 2, "give -o FOLDER"),
        (("masks.safetensors", "shots", "-o", "shots/shot0.png"), 2, "is neither a folder nor a table"),
        (("masks.safetensors", "shots", "-o", "out.csv", "--overlay"), 2, "give -o FOLDER, and --csv FILE"),
        (("masks.safetensors", "shots", "--csv", "out.txt"), 2, "expected a name that ends in .csv"),
        (("masks.safetensors", "shots", "--tta", "spin"), 2, "test-time augmentation 'spin'"),
        (("masks.safetensors", "shots", "--top-k", "3"), 2, "predicts masks, not classes"),
        (("masks.safetensors", "shots", "--threshold", "2"), 2, "threshold = 2.0"),
        (("classes.safetensors", "shots", "--batch-size", "0"), 2, "--batch-size"),
    ],
)
def test_a_wrong_line_is_one_clear_message(ringlet, shots, arguments, code, message):
    outcome = ringlet("predict", *arguments)
    assert (outcome.code, message in outcome.stderr) == (code, True), outcome.stderr
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.stderr


def call(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line in a process group of its own, which is gone when this returns."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "ringlet", "predict", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)
    try:
        stdout, stderr = process.communicate(text, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        pytest.fail(f"no end within {TIMEOUT} s\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def test_workers_share_the_pictures_and_one_of_them_writes_all_in_order(ringlet, shots):
    Path("shots/more/zero.png").touch()
    expected = json.loads(ringlet("predict", "classes.safetensors", "shots", "--json").stdout)["predictions"]
    workers = ("-n", "2", "--launcher", "local", "--batch-size", "2")
    outcome = call("classes.safetensors", "-", *workers, "-o", "out.json", text="shots\n")
    assert outcome.returncode == 1, outcome.stderr
    assert json.loads(Path("out.json").read_text()) == expected
    assert outcome.stdout == "Predictions: out.json\n"
    assert outcome.stderr.count("skipped: ") == 1
    assert "left with exit code" not in outcome.stderr


def test_workers_write_the_masks_of_their_shares(ringlet, shots):
    ringlet("predict", "masks.safetensors", "shots", "-o", "alone")
    outcome = call("masks.safetensors", "shots", "-n", "3", "--launcher", "local", "-o", "together")
    assert outcome.returncode == 0, outcome.stderr
    files = sorted(path.relative_to("alone") for path in Path("alone").rglob("*.png"))
    assert sorted(path.relative_to("together") for path in Path("together").rglob("*.png")) == files
    assert all((Path("alone") / file).read_bytes() == (Path("together") / file).read_bytes() for file in files)


def test_a_mistake_is_told_once_whatever_the_number_of_workers(shots):
    outcome = call("masks.safetensors", "shots", "-n", "2", "--launcher", "local", "-o", "shots/shot0.png")
    assert outcome.returncode == 2
    assert outcome.stderr.count("is neither a folder nor a table") == 1


def program(name, description):
    """A program that leaves a file behind when it is run."""
    mark = str(Path("was-run").absolute())
    Path(name).write_text(f"open({mark!r}, 'w').close()\nDESCRIPTION = {description!r}\ndef load(): return len\n")


@pytest.fixture
def beside(shots):
    """A model, a folder with a program alone, and an export to PyTorch whose program leaves a mark."""
    loaded = package.load_model("classes.safetensors")
    text = describe(loaded.spec, BYTES, loaded.labels).to_json()
    Path("alone").mkdir()
    Path("alone/x.safetensors").touch()
    for name in ("classes.py", "alone/x.py"):
        program(name, text)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["predict", "classes.safetensors", "shots"], 0),
        (["predict", "alone", "shots"], 1),
        (["predict", "alone/x.safetensors", "shots"], 1),
        (["evaluate", "alone"], 1),
        (["evaluate", "alone/x.safetensors"], 1),
        (["evaluate", "classes.py"], 1),
        (["export", "alone", "--to", "onnx"], 1),
        (["export", "alone/x.safetensors", "--to", "onnx"], 1),
        (["sql", "install", "duckdb:x.db", "alone", "--name", "x"], 1),
        (["sql", "install", "duckdb:x.db", "alone/x.safetensors", "--name", "x"], 1),
        (["sql", "install", "duckdb:x.db", "alone/x.py", "--name", "x"], 2),
        (["sql", "score", "duckdb:x.db", "--model", "alone", "--query", "select 1, 'x'::blob", "--into", "t"], 1),
        (["sql", "score", "duckdb:x.db", "--model", "alone/x.py", "--query", "select 1, 'x'::blob", "--into", "t"], 2),
    ],
    ids=lambda words: " ".join(words[:4]) if isinstance(words, list) else "",
)
def test_no_command_runs_a_program_that_was_not_named(ringlet, words, code):
    if words[0] == "sql":
        pytest.importorskip("duckdb").connect("x.db").close()
    outcome = ringlet(*words)
    assert outcome.code == code, outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not Path("was-run").exists()


@pytest.mark.usefixtures("beside")
def test_a_program_that_is_named_is_run_and_that_is_said(ringlet):
    pytest.importorskip("torch")
    outcome = ringlet("predict", "alone/x.py", "nowhere.png", "--json")
    assert "note: alone/x.py is a program and is run now: use only programs that you trust" in outcome.stderr
    assert Path("was-run").exists()
    assert "program" not in outcome.stdout

"""Contenders of training steps: which cases there are, processes that answer, and the same step in JAX."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import cases, training_speed
from benchmarks.cases import Case
from benchmarks.contenders import COMPILED, EAGER, JAX, LAYOUTS, OURS, Contender
from benchmarks.exchange import ANY, SHARED, table
from benchmarks.race import Entry, Limits, Race
from benchmarks.served import FailedError, Served
from benchmarks.steps import ringlet_step

from ringlet.bench.contenders import mpi_name
from ringlet.models import zoo

ROOT = Path(__file__).resolve().parents[2]


def test_sets_and_patterns_choose_cases_the_first_batch_of_all_first() -> None:
    assert cases.chosen("published", "resnet*@224", "1,4") == [
        ("resnet50@224", 1),
        ("resnet18@224", 1),
        ("resnet50@224", 4),
        ("resnet18@224", 4),
    ]
    published = cases.chosen("published")
    assert published[: len(cases.PUBLISHED)] == [(name, 4) for name in cases.PUBLISHED]
    assert [batch for name, batch in published if name == "unet@512"] == [4, 1, 2, 12]
    assert cases.chosen("small")[0] == ("simplecnn", 64)
    with pytest.raises(SystemExit, match=r"no network is called resnet51: expected some of simplecnn"):
        cases.chosen("small", "resnet51")


def test_every_family_of_the_zoo_is_measured_at_its_own_input_size() -> None:
    families = {zoo.describe(name).options.family for name in zoo.names()}
    measured = {zoo.describe(name.partition("@")[0]).options.family for name in cases.CASES}
    assert families == measured
    for name in cases.PUBLISHED:
        network, _, size = name.partition("@")
        assert zoo.create(network).input_shape[1:] == (int(size), int(size))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A contender that answers as its request says."""
    (tmp_path / "contender_of_a_test.py").write_text(
        "import json, signal, sys, time\n"
        "from benchmarks.served import serve\n"
        "request = json.loads(sys.argv[2])\n"
        "def prepare():\n"
        "    if request['how'] == 'fails': raise ValueError('no such network')\n"
        "    if request['how'] == 'hangs': signal.pause()\n"
        "    print('libraries print this')\n"
        "    return (lambda: None), {'loss': 0.5}\n"
        "serve(prepare, 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}:{ROOT / 'src'}")
    return "contender_of_a_test"


def test_a_contender_answers_from_a_process_of_its_own(module: str) -> None:
    served = Served(module, {"how": "works"}, num_threads=1)
    try:
        assert served.answer(60) == {"loss": 0.5}
        assert 0 <= served.seconds(3, 60) < 60
    finally:
        served.close()


@pytest.mark.parametrize(
    ("how", "seconds", "reason"), [("fails", 60, "ValueError: no such network"), ("hangs", 0.5, "no result within 0 s")]
)
def test_a_contender_that_fails_or_hangs_says_why(module: str, how: str, seconds: float, reason: str) -> None:
    with pytest.raises(FailedError, match=reason):
        Served(module, {"how": how}, num_threads=1).answer(seconds)


def race(seconds: dict[str, float], *, losses: dict[str, float] | None = None) -> Race:
    """A race that is over."""
    kinds = {"eager": EAGER, "compiled": COMPILED, "JAX": JAX, OURS: OURS}
    found = []
    for name in seconds:
        kind, _, layout = name.partition(", ")
        found.append(Contender(kinds[kind], ringlet_step, layout))
    case = Case("simplecnn@28", zoo.create("simplecnn"), 64)
    over = Race(case, found, Limits(1, 1, 1), num_threads=1)
    for name, entry in over.entries.items():
        entry.seconds, entry.ours = [seconds[name]], [seconds[OURS]]
        entry.loss = (losses or {}).get(name, 2.0)
    return over


def test_rivals_count_with_their_best_layout_and_compilation() -> None:
    over = race({OURS: 0.002, "eager, contiguous": 0.006, "eager, channels last": 0.005, "compiled, contiguous": 0.004})
    row = dict(zip(training_speed.COLUMNS, training_speed.row(over, 100.0), strict=True))
    assert (row["network"], row["input"], row["batch"]) == ("simplecnn", "28x28", 64)
    assert (row["Ringlet ms"], row["eager ms"], row["compiled ms"]) == ("2.00", "5.00", "4.00")
    assert (row["times float32"], row["times bf16"], row["times JAX"]) == ("2.00 x", "-", "-")
    assert row["samples/s"] == "32,000"


def test_only_the_layout_in_which_eager_is_faster_is_compiled() -> None:
    names = [f"{kind}, {layout}" for kind in (EAGER, COMPILED, JAX) for layout in LAYOUTS]
    over = race({OURS: 1.0, **dict.fromkeys(names, 3.0), f"{EAGER}, {LAYOUTS[1]}": 2.0})
    early, late = over._stages(best_layout_only=True)
    assert early == [f"{EAGER}, {LAYOUTS[0]}", f"{EAGER}, {LAYOUTS[1]}", f"{JAX}, {LAYOUTS[1]}"]
    assert late == [f"{COMPILED}, {LAYOUTS[1]}"]


def test_contenders_must_compute_the_same_loss() -> None:
    race({OURS: 1.0, "eager, contiguous": 1.0}, losses={OURS: 2.0001})._check_losses()
    with pytest.raises(SystemExit, match=r"first loss of Ringlet is 2\.1.*not the same network"):
        race({OURS: 1.0, "eager, contiguous": 1.0}, losses={OURS: 2.1})._check_losses()


def test_an_entry_that_failed_keeps_its_reason() -> None:
    entry = Entry(Contender(EAGER, ringlet_step), failed="no result within 5 s")
    assert entry.to_dict() == {"failed": "no result within 5 s"}


def test_exchanges_are_compared_with_the_shared_arrays_of_their_own_job() -> None:
    times = {(SHARED, 1024): 2e-6, (ANY, 1024): 3e-6, ("gloo", 1024): 8e-4, ("Open MPI", 1024): 6e-6}
    columns, rows = table(times, {SHARED: {1024: 2e-6}, "Open MPI": {1024: 4e-6}})
    assert columns[3:] == ["Gloo us", "Gloo / shared", "Open MPI us", "Open MPI / shared"]
    assert rows == [["1 kB", "2.0", "3.0", "800.0", "400.0 x", "6.0", "1.5 x"]]


@pytest.mark.parametrize(
    ("version", "name"),
    [("MPICH Version:      5.0.2\n", "MPICH"), ("Open MPI v5.0.11, package: x", "Open MPI"), ("", "MPI")],
)
def test_mpi_is_named_by_its_library(version: str, name: str) -> None:
    assert mpi_name(version) == name


JAX_STEPS = """
import json
from benchmarks.jax_models import jax_step
from benchmarks.steps import Case, ringlet_step
from ringlet.models import zoo

networks = {
    "unet": ({"input_shape": (3, 18, 18), "levels": 2, "width": 2}, "binary_cross_entropy"),
    "mobilenetv1": ({"input_shape": (3, 32, 32), "num_classes": 10, "width": 0.25}, "categorical_cross_entropy"),
    "simplecnn": ({}, "categorical_cross_entropy"),
}
losses = {}
for name, (options, loss) in networks.items():
    case = Case(name, zoo.create(name, **options), 4, loss)
    steps = [ringlet_step(case, num_threads=1), *(jax_step(case, channels_last=last) for last in (False, True))]
    losses[name] = [[step() for _ in range(3)] for step in steps]
print(json.dumps(losses))
"""


def test_a_step_in_jax_is_that_of_ringlet() -> None:
    """In a process of its own: JAX's threads would stay, and later tests fork."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs JAX: pip install 'ringlet[jax]'")
    output = subprocess.run(
        [sys.executable, "-c", JAX_STEPS], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
    ).stdout
    for name, (ours, *theirs) in json.loads(output.splitlines()[-1]).items():
        for losses in theirs:
            assert losses[0] == pytest.approx(ours[0], rel=1e-5), name
            assert losses[1:] == pytest.approx(ours[1:], rel=1e-2), name


def test_a_comparison_of_one_case_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    options = ("--models", "simplecnn", "--batches", "1", "--rounds", "1", "--contenders", "eager", "--memory")
    command = [sys.executable, "-m", "benchmarks.training_speed", *options, "--output", str(tmp_path / "speed.json")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=240)
    stored = json.loads((tmp_path / "speed.json").read_text())
    (row,) = stored["rows"]
    assert row[:3] == ["simplecnn", "28x28", "1"]
    found = stored["results"]["simplecnn / 28x28 / 1"]
    assert found.keys() == {"Ringlet", "eager, contiguous", "eager, channels last"}
    assert found["Ringlet"]["loss"] == pytest.approx(found["eager, contiguous"]["loss"], rel=1e-3)
    assert all(entry["bytes"] > 0 for entry in found.values())

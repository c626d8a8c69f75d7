"""Which engine and device a run gets: configuration, GPUs, missing frameworks, copies to a device, two ranks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ringlet as package
from ringlet.comm.environments import VARIABLES
from ringlet.comm.single import SingleCommunicator
from ringlet.config import RunConfig
from ringlet.engines.engine import create_replica
from ringlet.engines.native import NativeReplica
from ringlet.errors import ConfigError, UnknownNameError, UsageError
from ringlet.models import zoo
from ringlet.models.files import load_model_file
from ringlet.training.devices import assign_gpus, choose_device


@pytest.fixture
def spec():
    return zoo.create("vgg1dobn", input_shape=(1, 8, 8), num_classes=10)


# -- configuration --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "device: 'cuda' is not known, expected 'auto' or 'cpu'.* Engine torch takes it"),
        ({"engine": "keras", "device": "cpu"}, "device: 'cpu' is not known"),
        ({"engine": "pytorch"}, "Did you mean 'torch'"),
    ],
)
def test_impossible_choices_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(**options)


def test_a_run_may_go_on_elsewhere():
    assert RunConfig(engine="torch", device="cpu", threads=1).differences(RunConfig()) == {}


def test_an_unknown_engine_suggests_the_nearest(spec):
    with pytest.raises(UnknownNameError, match="Did you mean 'torch'"):
        create_replica("torhc", spec)


@pytest.mark.parametrize("engine", ["torch", "keras"])
def test_a_missing_framework_says_how_to_get_it(spec, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, engine, None)
    monkeypatch.setattr("ringlet.engines.keras.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=rf'pip install "ringlet\[{engine}\]"'):
        create_replica(engine, spec)


# -- devices --------------------------------------------------------------------------------------------------------
def test_every_worker_gets_the_gpu_of_its_local_rank():
    assert assign_gpus([["a", "b", "c"]] * 3) == [0, 1, 2]


def test_workers_that_see_one_gpu_each_take_that():
    assert assign_gpus([["a"], ["b"]]) == [0, 0]


@pytest.mark.parametrize(
    ("seen", "message"),
    [([["a"]] * 2, "2 workers on this machine, but only 1 GPUs"), ([["a"], []], "finds no GPU for worker 1")],
)
def test_more_workers_than_gpus_are_refused(seen, message):
    with pytest.raises(UsageError, match=message):
        assign_gpus(seen)


@pytest.fixture
def gpus(monkeypatch):
    """A machine with these GPUs; gives the list of those that were taken."""
    devices = pytest.importorskip("ringlet.engines.torch.devices", reason="needs PyTorch", exc_type=ImportError)

    def pretend(names):
        taken = []
        monkeypatch.setattr(devices, "visible_gpus", lambda: names)
        monkeypatch.setattr(devices, "take_gpu", lambda index: taken.append(index) or f"cuda:{index}")
        return taken

    return pretend


@pytest.mark.parametrize(
    ("wish", "found", "device"),
    [("auto", [], "cpu"), ("auto", ["a"], "cuda:0"), ("cpu", ["a"], "cpu"), ("cuda", ["a", "b"], "cuda:0")],
)
def test_the_device_follows_wish_and_machine(gpus, wish, found, device):
    taken = gpus(found)
    assert choose_device(RunConfig(engine="torch", device=wish), SingleCommunicator()) == device
    assert taken == ([] if device == "cpu" else [0])


def test_a_wish_for_a_gpu_that_is_not_there_is_refused(gpus):
    gpus([])
    with pytest.raises(UsageError, match="PyTorch finds no GPU"):
        choose_device(RunConfig(engine="torch", device="cuda"), SingleCommunicator())


def test_copies_on_a_device_compute_the_same(spec, monkeypatch):
    """The way to a GPU and back, with the processor as the device."""
    torch = pytest.importorskip("torch", reason="the engine torch needs PyTorch: pip install 'ringlet[torch]'")
    from ringlet.engines.torch import replica as module
    from ringlet.engines.torch.devices import DeviceGradients, DeviceMemory

    monkeypatch.setattr(module, "make_memory", DeviceMemory)
    monkeypatch.setattr(module, "make_gradients", lambda *parts: DeviceGradients(*parts[:3]))
    judge = NativeReplica(spec, local_batch_size=5, dtype="float64")
    copied = create_replica("torch", spec, local_batch_size=5, dtype="float64", threads=1)
    assert isinstance(copied._memory, DeviceMemory)
    rng = np.random.default_rng(0)
    batch, ranges = (rng.standard_normal((5, 1, 8, 8)), rng.integers(0, 10, 5)), []
    for step in range(2):
        expected = judge.loss_and_gradients(*batch, step=step)
        found = copied.loss_and_gradients(*batch, step=step, on_ready=lambda *part: ranges.append(part))
        assert found.loss_sum == pytest.approx(expected.loss_sum, rel=1e-10)
        np.testing.assert_allclose(copied.gradients.flat, judge.gradients.flat, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(copied.state.flat, judge.state.flat, rtol=1e-10)
        for own in (judge, copied):
            own.parameters.flat[:] -= 0.1 * judge.gradients.flat
    assert ranges == [(0, spec.num_parameters)] * 2
    np.testing.assert_allclose(copied.predict(batch[0]), judge.predict(batch[0]), rtol=1e-8)
    assert torch.get_num_threads() == 1


# -- ranks ----------------------------------------------------------------------------------------------------------
def train(folder, *arguments):
    """``ringlet train`` on the torch engine, with two shards."""
    ours = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ours |= {"PYTHONPATH": str(Path(package.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    options = ("--engine", "torch", "--shards", "2", "--num-samples", "256", "--num-epochs", "2", "--threads", "1")
    command = [sys.executable, "-m", "ringlet", "train", *options, "--run-dir", str(folder), "--json", *arguments]
    done = subprocess.run(command, env=ours, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"engine\.name +: torch", done.stderr)
    return json.loads(done.stdout), load_model_file(folder / "model.safetensors").tensors


def test_two_ranks_on_the_torch_engine_equal_one(tmp_path):
    pytest.importorskip("torch", reason="the engine torch needs PyTorch: pip install 'ringlet[torch]'")
    one, expected = train(tmp_path / "one")
    two, found = train(tmp_path / "two", "-n", "2", "--launcher", "local")
    assert (one["num_workers"], two["num_workers"]) == (1, 2)
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-5, atol=1e-6, err_msg=name)

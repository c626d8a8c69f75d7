"""Shared by the engine tests: kernels to run on, a PyTorch opinion, and the comparison of the two."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ringlet.engines.dropout import dropout_key
from ringlet.engines.native import NativeReplica
from ringlet.kernels import available, load

sys.path.insert(0, str(Path(__file__).parent))  # tests import what lies beside them


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Tests neither read nor write the user's tuning cache, and do not spend time on measuring."""
    monkeypatch.setenv("RINGLET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RINGLET_TUNING", "off")


@pytest.fixture(params=("reference", "compiled"))
def kernels(request):
    """Each implementation of the kernels that is available here."""
    if request.param not in available():
        pytest.skip(f"{request.param} kernels are not built")
    return load(request.param)


@pytest.fixture(scope="session")
def reference():
    return load("reference")


@pytest.fixture(scope="session")
def torch_builder() -> ModuleType:
    """PyTorch's opinion; without PyTorch the test is skipped."""
    pytest.importorskip("torch").set_num_threads(1)
    path = Path(__file__).with_name("torch_builder.py")
    description = importlib.util.spec_from_file_location("engine_torch_builder", path)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def dropout_masks(spec, dtype, seed, step, shard):
    """``masks(index, shape)`` as PyTorch needs them, drawn by the reference kernel."""

    def masks(index, shape):
        ones = np.ones((*shape[1:], shape[0]), dtype)
        kept = np.empty_like(ones)
        key = dropout_key(seed, step, shard, index)
        load("reference").dropout(ones, kept, rate=spec.nodes[index].attributes["rate"], key=key, accumulate=False)
        return np.moveaxis(kept, -1, 0).copy()

    return masks


def scatter_state(replica, rng):
    """Parameters and running statistics that hide no mistake: no zeros, no ones."""
    for name, view in (*replica.parameters.views.items(), *replica.state.views.items()):
        if name.endswith((".bias", ".shift", ".running_mean")):
            view[...] = rng.uniform(-0.2, 0.2, view.shape)
        elif name.endswith((".scale", ".running_var")):
            view[...] = rng.uniform(0.7, 1.4, view.shape)


def random_targets(rng, spec, loss, count, *, classes=None):
    if loss == "categorical_cross_entropy" or classes:
        return rng.integers(0, spec.output_shape[0], (count, *spec.output_shape[1:]))
    return rng.integers(0, 2, (count, *spec.output_shape)).astype(float)


def relative_error(found, expected):
    """Largest deviation in units of the expected tensor's largest element."""
    scale = max(np.abs(expected).max(initial=0), 1e-12)
    return float(np.abs(np.asarray(found) - expected).max(initial=0) / scale)


@pytest.fixture
def assert_parity(torch_builder):
    """Compare a spec on the native engine with PyTorch: training step, running statistics, inference."""

    def compare(
        spec, kernels, *, count=3, local_batch_size=None, dtype="float64", loss="categorical_cross_entropy",
        tolerance=None, targets=None, train=True, exact=False,
    ):  # fmt: skip
        rng = np.random.default_rng(7)
        tolerance = tolerance or {"float64": 1e-9, "float32": 2e-4}[dtype]
        replica = NativeReplica(
            spec, loss=loss, local_batch_size=local_batch_size or count, dtype=dtype, kernels=kernels, exact=exact
        )
        scatter_state(replica, rng)
        inputs = rng.standard_normal((count, *spec.input_shape)).astype(dtype)
        if targets is None:
            targets = random_targets(rng, spec, loss, count)
        masks = dropout_masks(spec, dtype, 3, 5, 1)
        judge = torch_builder.TorchReplica(spec, replica.parameters.views, replica.state.views, masks)
        assert relative_error(replica.predict(inputs), judge.predict(inputs)) < tolerance
        if train:
            result = replica.loss_and_gradients(inputs, targets, seed=3, step=5, shard=1)
            loss_sum, gradients, outputs = judge.loss_and_gradients(inputs, targets, loss)
            assert result.loss_sum == pytest.approx(loss_sum, rel=tolerance)
            assert result.count == count
            assert relative_error(result.outputs, outputs) < tolerance
            total = max(np.abs(gradient).max() for gradient in gradients.values())
            for name, expected in gradients.items():
                found = replica.gradients.views[name]
                assert np.abs(found - expected).max() < tolerance * max(np.abs(expected).max(), 1e-3 * total), name
            for name, expected in judge.state.items():
                assert relative_error(replica.state.views[name], expected.numpy()) < tolerance, name
        evaluated = replica.evaluate(inputs, targets)
        values = judge.forward(inputs, training=False)
        expected_loss = judge.loss_sum(values, loss, targets).item()
        assert evaluated.loss_sum == pytest.approx(expected_loss, rel=tolerance * 10)
        return replica

    return compare

"""The choice of convolution algorithms: measured once, settled on disk, harmless when the disk is not."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica, tuning
from ringlet.models import builder as b


@pytest.fixture(autouse=True)
def _measuring(monkeypatch):
    monkeypatch.delenv("RINGLET_TUNING")
    tuning.forget()
    yield
    tuning.forget()


class CountingKernels:
    """The reference kernels under another name; every convolution call is written down."""

    name = "counting"
    version = "1"
    instruction_set = "none"

    def __init__(self, reference):
        self._reference = reference
        self.algorithms = []

    def __getattr__(self, name):
        function = getattr(self._reference, name)
        if not name.startswith("conv2d"):
            return function

        def counted(*arrays, **options):
            self.algorithms.append(options["algorithm"])
            return function(*arrays, **options)

        return counted


def network():
    x = b.relu(b.conv2d(b.image_input((2, 6, 6)), 4, kernel=3, padding=1))
    x = b.conv2d(x, 4, kernel=3, stride=2)
    return b.build("tuned", b.softmax(b.dense(b.flatten(x), 3)))


def batch():
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 2, 6, 6), dtype=np.float32), rng.integers(0, 3, 4)


def chosen(replica):
    return [options["algorithm"] for _, _, options in replica.plan.training_calls if "algorithm" in options]


def test_reference_kernels_are_never_measured(reference):
    replica = NativeReplica(network(), local_batch_size=4, kernels=reference)
    assert set(chosen(replica)) == {"direct"}
    assert not tuning.cache_path().exists()


def test_every_applicable_algorithm_is_tried_once_per_shape(reference):
    kernels = CountingKernels(reference)
    chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))
    assert set(kernels.algorithms) == {"direct", "gemm", "winograd2", "winograd4"}
    kernels.algorithms.clear()
    chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))
    assert kernels.algorithms == []


def test_preparation_leaves_nothing_to_measure_in_a_step(reference):
    kernels = CountingKernels(reference)
    replica = NativeReplica(network(), local_batch_size=4, kernels=kernels)
    replica.prepare()
    kernels.algorithms.clear()
    replica.loss_and_gradients(*batch())
    assert len(kernels.algorithms) == 5
    assert set(tuning.remembered().values()) >= set(chosen(replica))


def test_choices_survive_the_process(reference):
    kernels = CountingKernels(reference)
    first = chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))
    tuning.forget()
    kernels.algorithms.clear()
    assert chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels)) == first
    assert kernels.algorithms == []


def test_exact_leaves_winograd_out(reference):
    kernels = CountingKernels(reference)
    chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels, exact=True))
    assert set(kernels.algorithms) == {"direct", "gemm"}


@pytest.mark.parametrize("content", ["", "{", "[1, 2]", '{"a": 3}', "\x00", "[" * 100_000])
def test_damaged_cache_is_replaced(reference, content):
    path = tuning.cache_path()
    path.parent.mkdir(parents=True)
    path.write_text(content)
    chosen(NativeReplica(network(), local_batch_size=4, kernels=CountingKernels(reference)))
    assert set(json.loads(path.read_text()).values()) <= {"direct", "gemm", "winograd2", "winograd4"}


def test_entry_with_an_algorithm_that_does_not_apply_is_measured_again(reference):
    kernels = CountingKernels(reference)
    first = NativeReplica(network(), local_batch_size=4, kernels=kernels)
    chosen(first)
    path = tuning.cache_path()
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), "winograd2")))
    tuning.forget()
    strided = [
        options["algorithm"]
        for _, _, options in NativeReplica(network(), local_batch_size=4, kernels=kernels).plan.training_calls
        if options.get("stride") == (2, 2)
    ]
    assert set(strided) <= {"direct", "gemm"}


def test_cache_that_cannot_be_written_costs_nothing_else(reference, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("RINGLET_CACHE", str(blocked / "cache"))
    replica = NativeReplica(network(), local_batch_size=4, kernels=CountingKernels(reference))
    assert np.isfinite(replica.loss_and_gradients(*batch()).loss_sum)


def test_the_first_entry_on_disk_wins(tmp_path):
    path = tmp_path / "tuning.json"
    tuning.settle(path, {"a": "gemm"})
    assert tuning.settle(path, {"a": "direct", "b": "direct"}) == {"a": "gemm", "b": "direct"}


def test_measuring_leaves_results_untouched(reference):
    plain = NativeReplica(network(), local_batch_size=4, kernels=reference)
    tuned = NativeReplica(network(), local_batch_size=4, kernels=CountingKernels(reference))
    assert tuned.loss_and_gradients(*batch()).loss_sum == plain.loss_and_gradients(*batch()).loss_sum
    gradients = tuned.gradients.flat.copy()
    np.testing.assert_array_equal(gradients, plain.gradients.flat)
    tuned.evaluate(*batch())
    np.testing.assert_array_equal(tuned.gradients.flat, gradients)


def test_a_replica_that_only_predicts_measures_no_backward_kernel(reference):
    kernels = CountingKernels(reference)
    NativeReplica(network(), local_batch_size=4, kernels=kernels).predict(batch()[0])
    entries = json.loads(tuning.cache_path().read_text())
    assert all(":conv2d_forward:" in key for key in entries)


def test_switched_off_the_choice_follows_from_the_shape(reference, monkeypatch):
    monkeypatch.setenv("RINGLET_TUNING", "off")
    kernels = CountingKernels(reference)
    replica = NativeReplica(network(), local_batch_size=4, kernels=kernels)
    assert set(chosen(replica)) == {"direct"}
    assert kernels.algorithms == []


@pytest.mark.parametrize(
    ("weight", "stride", "exact", "expected"),
    [
        ((32, 16, 3, 3), (1, 1), False, "winograd4"),
        ((32, 16, 3, 3), (1, 1), True, "gemm"),
        ((32, 16, 3, 3), (2, 2), False, "gemm"),
        ((32, 64, 1, 1), (1, 1), False, "gemm"),
        ((4, 1, 3, 3), (1, 1), False, "direct"),
    ],
)
def test_rule_by_shape(weight, stride, exact, expected):
    filters, channels = weight[:2]
    arrays = [SimpleNamespace(shape=shape) for shape in ((channels, 8, 8, 8), weight, (), (filters, 8, 8, 8))]
    options = {"stride": stride, "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    geometry = tuning.Geometry("conv2d_forward", arrays, options)
    assert tuning.heuristic(geometry, exact=exact) == expected

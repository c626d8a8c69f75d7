"""The choice of convolution algorithms: measured once, settled on disk, harmless when the disk is not."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica, tuning
from ringlet.errors import UnknownNameError
from ringlet.kernels.contract import CONV_ALGORITHMS
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

    def for_activations(self, _):
        return self

    def prepare(self, kernel, arrays, options):
        return partial(getattr(self, kernel), *arrays, **options)


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
    assert set(kernels.algorithms) == set(CONV_ALGORITHMS)
    kernels.algorithms.clear()
    chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))
    assert kernels.algorithms == []


@pytest.mark.parametrize(("seconds", "expected"), [(0.95, {"direct"}), (0.8, {"direct", "gemm"})])
def test_another_algorithm_than_that_of_the_rule_must_be_clearly_faster(reference, monkeypatch, seconds, expected):
    monkeypatch.setattr(tuning, "_time", lambda call: seconds if call.keywords["algorithm"] == "gemm" else 1.0)
    assert set(chosen(NativeReplica(network(), local_batch_size=4, kernels=CountingKernels(reference)))) == expected


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
    assert set(json.loads(path.read_text()).values()) <= set(CONV_ALGORITHMS)


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


def test_the_rule_can_be_asked_for_and_measures_nothing(reference):
    kernels = CountingKernels(reference)
    replica = NativeReplica(network(), local_batch_size=4, kernels=kernels, tuning="rule")
    replica.prepare()
    assert kernels.algorithms == []
    assert not tuning.cache_path().exists()


def test_the_rule_takes_no_notice_of_what_was_measured(reference):
    kernels = CountingKernels(reference)
    chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))
    path = tuning.cache_path()
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({key: "gemm" if "backward_weight" in key else "winograd2" for key in entries}))
    tuning.forget()
    assert set(chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels))) >= {"gemm", "winograd2"}
    assert set(chosen(NativeReplica(network(), local_batch_size=4, kernels=kernels, tuning="rule"))) == {"direct"}


def test_an_unknown_way_of_tuning_is_refused(reference):
    with pytest.raises(UnknownNameError, match=r"unknown tuning 'rules'\. Did you mean 'rule'"):
        NativeReplica(network(), kernels=reference, tuning="rules")


def geometry(kernel, weight, size, *, lanes=32, stride=1, padding=1, groups=1, dtype="float32"):
    """Of a convolution of a square image whose output has ``size`` rows."""
    filters, channels, rows, _ = weight
    extent = (size - 1) * stride + rows - 2 * padding
    image, pixels = (channels * groups, extent, extent, lanes), (filters, size, size, lanes)
    roles = {
        "conv2d_forward": (image, weight, (), pixels),
        "conv2d_backward_data": (pixels, weight, image),
        "conv2d_backward_weight": (image, pixels, weight),
    }
    arrays = [SimpleNamespace(shape=shape, dtype=np.dtype(dtype)) for shape in roles[kernel]]
    options = {"stride": (stride, stride), "padding": (padding, padding), "dilation": (1, 1), "groups": groups}
    return tuning.Geometry(kernel, arrays, options)


FORWARD, DATA, WEIGHT = tuning.CONVOLUTIONS


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (geometry(FORWARD, (64, 64, 3, 3), 32), "winograd4"),
        (geometry(FORWARD, (8, 16, 3, 3), 32), "winograd_rows"),
        (geometry(FORWARD, (64, 3, 3, 3), 32), "winograd_rows"),
        (geometry(DATA, (16, 8, 3, 3), 32), "winograd_rows"),
        (geometry(WEIGHT, (32, 32, 3, 3), 16), "winograd_rows"),
        (geometry(FORWARD, (8, 2, 3, 3), 32), "direct"),
        (geometry(FORWARD, (16, 16, 3, 3), 4), "winograd4"),
        (geometry(WEIGHT, (64, 32, 3, 3), 16), "winograd4"),
        (geometry(FORWARD, (256, 256, 3, 3), 4, lanes=8), "winograd2"),
        (geometry(FORWARD, (256, 256, 3, 3), 16, lanes=1), "winograd4"),
        (geometry(FORWARD, (512, 512, 3, 3), 7, lanes=1), "direct"),
        (geometry(FORWARD, (8, 8, 3, 3), 512, lanes=1), "direct"),
        (geometry(FORWARD, (16, 16, 3, 3), 256, lanes=1), "winograd_rows"),
        (geometry(FORWARD, (256, 256, 3, 3), 4, lanes=32), "winograd4"),
        (geometry(FORWARD, (512, 512, 3, 3), 2), "winograd2"),
        (geometry(WEIGHT, (512, 512, 3, 3), 2), "winograd2"),
        (geometry(FORWARD, (512, 512, 3, 3), 2, padding=0), "winograd2"),
        (geometry(FORWARD, (64, 64, 3, 3), 16, stride=2), "direct"),
        (geometry(FORWARD, (64, 64, 1, 1), 16, padding=0), "direct"),
        (geometry(FORWARD, (32, 32, 3, 3), 16, dtype="bfloat16"), "winograd4"),
        (geometry(FORWARD, (512, 512, 3, 3), 2, dtype="bfloat16"), "winograd2"),
        (geometry(FORWARD, (16, 8, 3, 3), 16, stride=2, dtype="bfloat16"), "gemm"),
        (geometry(FORWARD, (16, 8, 3, 3), 16, stride=2, lanes=8, dtype="bfloat16"), "direct"),
        (geometry(WEIGHT, (16, 8, 3, 3), 16, stride=2, lanes=8, dtype="bfloat16"), "gemm"),
        (geometry(FORWARD, (16, 8, 1, 1), 16, lanes=1, padding=0, dtype="bfloat16"), "gemm"),
        (geometry(WEIGHT, (32, 16, 1, 1), 16, padding=0), "gemm"),
        (geometry(WEIGHT, (64, 32, 3, 3), 2, stride=2), "gemm"),
        (geometry(WEIGHT, (64, 8, 1, 1), 16, padding=0), "direct"),
        (geometry(FORWARD, (16, 64, 1, 1), 16, padding=0), "direct"),
        (geometry(FORWARD, (4, 1, 3, 3), 26, padding=0), "direct"),
        (geometry(FORWARD, (64, 1, 3, 3), 16, groups=64), "direct"),
    ],
    ids=lambda case: case if isinstance(case, str) else case.key,
)
def test_rule_by_shape(case, expected):
    assert tuning.heuristic(case, exact=False) == expected


def test_exact_rule_has_no_winograd():
    assert tuning.heuristic(geometry(FORWARD, (64, 64, 3, 3), 32), exact=True) == "direct"


@pytest.mark.parametrize(("size", "padding", "expected"), [(2, 1, 4.0), (2, 0, 9.0), (4, 1, 6.25), (1, 1, 1.0)])
def test_taps_in_the_padding_are_not_counted(size, padding, expected):
    assert geometry(FORWARD, (8, 8, 3, 3), size, padding=padding).taps_inside() == expected


def test_the_rule_only_names_what_applies():
    weights = [(f, c, r, r) for f in (1, 8, 16, 64) for c in (1, 8, 16, 64) for r in (1, 3, 5)]
    for kernel in tuning.CONVOLUTIONS:
        for weight in weights:
            for size, stride, exact in ((1, 1, False), (2, 1, True), (7, 1, False), (8, 2, False)):
                case = geometry(kernel, weight, size, stride=stride, padding=0)
                assert tuning.heuristic(case, exact=exact) in tuning.applicable(case, exact=exact)

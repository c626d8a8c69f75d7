"""Gradients are reported final while the backward pass runs: each element once, and not before it is."""

from __future__ import annotations

import numpy as np
import pytest
from narrow_networks import narrowed

from ringlet.engines.native import NativeReplica
from ringlet.engines.native.binding import backward_parts, final_ranges
from ringlet.models import builder as b
from ringlet.models import zoo
from ringlet.operations.native import Call, new_tensor

FAMILIES = [
    ("simplemlp", 28, {"hidden": (32, 16)}),
    ("simplecnn", 12, {}),
    ("mnistcnn", 10, {}),
    ("alexnet_cifar10", 16, {"hidden": (64, 32)}),
    ("vgg3dobn", 8, {}),
    ("vgg16_bn", 32, {}),
    ("resnet20", 8, {"width": 4}),
    ("resnet50", 8, {"width": 4, "form": "cifar"}),
    ("mobilenetv1", 32, {"width": 0.125}),
    ("densenet121", 8, {"growth": 8, "form": "cifar"}),
    ("googlenet", 33, {}),
    ("inceptionv3", 75, {"form": "imagenet"}),
    ("unet", 16, {"levels": 3, "width": 4}),
]


def case_of(name, size, options):
    """A spec of the family, its loss, and a batch of two samples."""
    spec = narrowed(zoo.create(name, input_shape=(zoo.describe(name).input_shape[0], size, size), **options), name)
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((2, *spec.input_shape), dtype=np.float32)
    if name == "unet":
        return spec, "binary_cross_entropy", (inputs, rng.integers(0, 2, (2, *spec.output_shape)).astype(np.float32))
    return spec, "categorical_cross_entropy", (inputs, rng.integers(0, spec.output_shape[0], 2))


class Recorder:
    """Keeps every range with the values that it had when it was reported."""

    def __init__(self, replica):
        self._flat = replica.gradients.flat
        self.ranges = []
        self.values = []

    def __call__(self, start, stop):
        self.ranges.append((start, stop))
        self.values.append(self._flat[start:stop].copy())


@pytest.fixture(params=FAMILIES, ids=lambda case: case[0])
def family(request):
    return case_of(*request.param)


def test_every_element_is_reported_once_with_its_final_value(family):
    spec, loss, batch = family
    replica = NativeReplica(spec, loss=loss, local_batch_size=2)
    replica.gradients.flat.fill(np.nan)
    recorder = Recorder(replica)
    replica.loss_and_gradients(*batch, on_ready=recorder)
    starts, stops = zip(*sorted(recorder.ranges), strict=True)
    assert starts == (0, *stops[:-1])
    assert stops[-1] == spec.num_parameters
    for (start, stop), values in zip(recorder.ranges, recorder.values, strict=True):
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, replica.gradients.flat[start:stop])


def test_reporting_changes_no_bit(family):
    spec, loss, batch = family
    plain, reported = (NativeReplica(spec, loss=loss, local_batch_size=2) for _ in range(2))
    expected = plain.loss_and_gradients(*batch)
    found = reported.loss_and_gradients(*batch, on_ready=lambda _start, _stop: None)
    assert found.loss_sum == expected.loss_sum
    np.testing.assert_array_equal(reported.gradients.flat, plain.gradients.flat)
    np.testing.assert_array_equal(reported.state.flat, plain.state.flat)


def test_reported_gradients_may_be_changed_at_once(family):
    spec, loss, batch = family
    replica = NativeReplica(spec, loss=loss, local_batch_size=2)
    replica.loss_and_gradients(*batch)
    expected = replica.gradients.flat.copy()
    replica.initialize(0)

    def negate(start, stop):
        replica.gradients.flat[start:stop] *= -1

    replica.loss_and_gradients(*batch, on_ready=negate)
    np.testing.assert_array_equal(replica.gradients.flat, -expected)


def test_the_last_layer_is_reported_before_the_first_is_computed(kernels):
    spec = zoo.create("simplecnn", input_shape=(1, 12, 12))
    replica = NativeReplica(spec, local_batch_size=2, kernels=kernels)
    first, last = spec.parameters[0], spec.parameters[-1]
    seen = []

    def watch(start, stop):
        seen.append((start, stop, replica.gradients.views[first.name].any()))

    rng = np.random.default_rng(0)
    replica.loss_and_gradients(rng.standard_normal((2, 1, 12, 12)), np.array([1, 2]), on_ready=watch)
    last_range = next(index for index, (_, stop, _) in enumerate(seen) if stop == spec.num_parameters)
    assert not seen[last_range][2]
    assert last_range < next(index for index, (start, _, _) in enumerate(seen) if start == 0)
    assert last.name.endswith("bias")


def test_scale_and_shift_of_a_batch_norm_are_one_range(kernels):
    x = b.batch_norm(b.conv2d(b.image_input((1, 4, 4)), 3, kernel=1, bias=False))
    replica = NativeReplica(b.build("norm", x), loss="mse", local_batch_size=2, kernels=kernels)
    recorder = Recorder(replica)
    replica.loss_and_gradients(np.ones((2, 1, 4, 4), np.float32), np.zeros((2, 3, 4, 4)), on_ready=recorder)
    assert recorder.ranges == [(3, 9), (0, 3)]


def test_an_empty_batch_is_one_range(kernels):
    replica = NativeReplica(zoo.create("simplemlp"), local_batch_size=4, kernels=kernels)
    recorder = Recorder(replica)
    empty = np.zeros((0, *replica.spec.input_shape), np.float32), np.zeros(0, np.int64)
    replica.gradients.flat.fill(1)
    replica.loss_and_gradients(*empty, on_ready=recorder)
    assert recorder.ranges == [(0, replica.spec.num_parameters)]
    assert not recorder.values[0].any()


def test_a_network_without_parameters_reports_nothing(kernels):
    replica = NativeReplica(
        b.build("none", b.relu(b.image_input((1, 2, 2)))), loss="mse", local_batch_size=2, kernels=kernels
    )
    recorder = Recorder(replica)
    replica.loss_and_gradients(np.ones((2, 1, 2, 2)), np.zeros((2, 1, 2, 2)), on_ready=recorder)
    assert recorder.ranges == []


def test_an_error_in_on_ready_is_passed_on_and_the_next_step_is_whole(kernels):
    replica = NativeReplica(zoo.create("simplemlp"), local_batch_size=4, kernels=kernels)
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((4, *replica.spec.input_shape), dtype=np.float32), rng.integers(0, 10, 4)
    replica.loss_and_gradients(*batch)
    expected = replica.gradients.flat.copy()

    def fail(_start, _stop):
        raise ValueError("the other rank is gone")

    with pytest.raises(ValueError, match="the other rank is gone"):
        replica.loss_and_gradients(*batch, on_ready=fail)
    replica.loss_and_gradients(*batch)
    np.testing.assert_array_equal(replica.gradients.flat, expected)


# -- the timeline ---------------------------------------------------------------------------------------------------
class Notes:
    """A timeline without times."""

    def __init__(self):
        self.phases = []

    def mark(self, phase):
        self.phases.append(phase)


@pytest.mark.parametrize("count", [0, 3])
def test_forward_and_backward_are_marked(kernels, count):
    replica = NativeReplica(zoo.create("simplemlp"), local_batch_size=4, kernels=kernels)
    timeline = Notes()
    batch = np.zeros((count, *replica.spec.input_shape), np.float32), np.zeros(count, np.int64)
    replica.loss_and_gradients(*batch, timeline=timeline)
    assert timeline.phases == ["forward", "backward"]


def test_the_backward_mark_lies_between_the_loss_and_the_first_gradient(kernels):
    replica = NativeReplica(zoo.create("simplemlp"), local_batch_size=4, kernels=kernels)
    replica.gradients.flat.fill(7)

    class Watching:
        def mark(self, phase):
            if phase == "backward":
                self.loss_sum = replica.plan.context.loss_sum
                self.gradients = set(replica.gradients.flat)

    watching = Watching()
    batch = np.ones((4, *replica.spec.input_shape), np.float32), np.zeros(4, np.int64)
    output = replica.loss_and_gradients(*batch, timeline=watching)
    assert watching.loss_sum == output.loss_sum > 0
    assert watching.gradients == {7}


# -- ranges and parts -----------------------------------------------------------------------------------------------
def test_ranges_follow_from_the_last_call_that_touches_them():
    flat = np.zeros(10, np.float32)
    other, tensor = np.zeros(10, np.float32), new_tensor("x", (4,), np.dtype(np.float32))
    calls = [
        Call("a", (flat[0:4].reshape(2, 2), tensor)),
        Call("b", (other, flat[6:8], flat[4:6])),
        Call("c", (flat[2:4], other)),
        Call("d", (None, 3)),
    ]
    assert final_ranges(calls, flat) == {0: ((0, 2),), 2: ((2, 4),), 1: ((4, 8),), -1: ((8, 10),)}


def test_arrays_of_other_memory_are_no_gradients():
    flat = np.zeros(4, np.float32)
    assert final_ranges([Call("a", (np.zeros(4, np.float32),))], flat) == {-1: ((0, 4),)}


def test_parts_are_cut_where_gradients_become_final():
    parts = backward_parts({-1: ((9, 10),), 3: ((4, 9),), 5: ((0, 2), (3, 4))}, 2, 7)
    assert [(list(range(7)[part.calls]), part.ranges) for part in parts] == [
        ([], ((9, 10),)), ([2, 3], ((4, 9),)), ([4, 5], ((0, 2), (3, 4))), ([6], ()),
    ]  # fmt: skip

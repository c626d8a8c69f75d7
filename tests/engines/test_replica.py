"""What a replica promises beside the right numbers: repeatability, any number of samples, clear errors."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

from ringlet.engines.native import NativeReplica
from ringlet.errors import DataError, UnknownNameError, UsageError
from ringlet.kernels import available, load
from ringlet.models import builder as b
from ringlet.models import zoo


@pytest.fixture
def spec():
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((2, 8, 8)), 5, kernel=3, padding=1)))
    x = b.dropout(b.max_pool2d(x, 2), 0.5)
    return b.build("small", b.softmax(b.dense(b.flatten(x), 3)))


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((16, 2, 8, 8), dtype=np.float32), rng.integers(0, 3, 16)


def gradients_after(replica, batch, **keys):
    replica.loss_and_gradients(*batch, **keys)
    return replica.gradients.flat.copy()


# -- any number of samples ------------------------------------------------------------------------------------------
def test_a_single_sample_of_one_pixel_stays_finite_in_a_deep_network(kernels):
    """Without variance batch normalisation magnifies what is not the mean: padding lanes must not take part."""
    x = b.image_input((3, 1, 1))
    for _ in range(30):
        x = b.relu(b.batch_norm(b.conv2d(x, 8, kernel=1)))
    spec = b.build("deep", b.softmax(b.dense(b.flatten(x), 3)))
    replica = NativeReplica(spec, local_batch_size=1, kernels=kernels)
    output = replica.loss_and_gradients(np.ones((1, 3, 1, 1), np.float32), np.array([1]))
    assert output.loss_sum == pytest.approx(np.log(3), rel=1e-5)
    assert np.isfinite(replica.gradients.flat).all()
    assert np.isfinite(replica.state.flat).all()


# -- repeatability --------------------------------------------------------------------------------------------------
def test_equal_seed_step_and_shard_give_equal_bits(spec, batch, kernels):
    first, second = (NativeReplica(spec, local_batch_size=16, kernels=kernels) for _ in range(2))
    keys = {"seed": 1, "step": 2, "shard": 3}
    assert gradients_after(first, batch, **keys).tobytes() == gradients_after(second, batch, **keys).tobytes()


@pytest.mark.parametrize("changed", ["seed", "step", "shard"])
def test_another_seed_step_or_shard_draws_another_dropout_mask(spec, batch, kernels, changed):
    replica = NativeReplica(spec, local_batch_size=16, kernels=kernels)
    keys = {"seed": 1, "step": 2, "shard": 3}
    first = replica.loss_and_gradients(*batch, **keys).loss_sum
    assert replica.loss_and_gradients(*batch, **(keys | {changed: 9})).loss_sum != first


def test_two_dropout_layers_draw_different_masks(reference):
    x = b.image_input((1, 4, 4))
    spec = b.build("two", b.concat(b.dropout(x, 0.5), b.dropout(x, 0.5)))
    replica = NativeReplica(spec, loss="mse", local_batch_size=4, kernels=reference)
    ones = np.ones((4, 1, 4, 4), np.float32)
    first, second = np.moveaxis(replica.loss_and_gradients(ones, np.zeros((4, 2, 4, 4))).outputs, 1, 0)
    assert not np.array_equal(first, second)


def test_inference_ignores_dropout_and_changes_nothing(spec, batch, kernels):
    replica = NativeReplica(spec, local_batch_size=16, kernels=kernels)
    replica.loss_and_gradients(*batch)
    before = [flat.flat.copy() for flat in (replica.parameters, replica.gradients, replica.state)]
    outputs = replica.predict(batch[0])
    np.testing.assert_array_equal(replica.evaluate(*batch).outputs, outputs)
    for flat, old in zip((replica.parameters, replica.gradients, replica.state), before, strict=True):
        np.testing.assert_array_equal(flat.flat, old)


def test_evaluation_between_steps_does_not_change_the_next_step(spec, batch, kernels):
    plain, disturbed = (NativeReplica(spec, local_batch_size=16, kernels=kernels) for _ in range(2))
    disturbed.evaluate(*batch)
    for step in range(2):
        expected = gradients_after(plain, batch, step=step)
        found = gradients_after(disturbed, batch, step=step)
        disturbed.predict(batch[0][:3])
        assert found.tobytes() == expected.tobytes()


@pytest.fixture
def threaded_kernels():
    """The compiled kernels, whose number of threads can be set; it is put back."""
    if "compiled" not in available():
        pytest.skip("compiled kernels are not built")
    compiled = load("compiled")
    before = compiled.num_threads()
    yield compiled
    compiled.set_num_threads(before)


@pytest.mark.parametrize("count", [64, 37])
def test_the_number_of_threads_changes_no_bit_of_a_training_step(threaded_kernels, count):
    x = b.relu(b.batch_norm(b.conv2d(b.image_input((3, 16, 16)), 32, kernel=3, padding=1)))
    x = b.relu(b.batch_norm(b.conv2d(x, 64, kernel=3, padding=1)))
    x = b.dropout(b.max_pool2d(b.add(x, b.conv2d(x, 64, kernel=1)), 2), 0.3)
    x = b.relu(b.conv2d(x, 64, kernel=3, padding=1, stride=2))
    spec = b.build("threads", b.softmax(b.dense(b.dropout(b.flatten(x), 0.5), 10)))
    rng = np.random.default_rng(5)
    batch = rng.standard_normal((count, 3, 16, 16), dtype=np.float32), rng.integers(0, 10, count)

    def step(threads):
        replica = NativeReplica(spec, local_batch_size=64, kernels=threaded_kernels, threads=threads, tuning="rule")
        assert threaded_kernels.num_threads() == threads
        output = replica.loss_and_gradients(*batch, step=4)
        return output.loss_sum, *(
            part.tobytes() for part in (output.outputs, replica.gradients.flat, replica.state.flat)
        )

    assert step(1) == step(2) == step(3)


# -- any number of samples ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("count", [1, 7, 15])
def test_ragged_batch_equals_a_plan_of_its_size(spec, batch, kernels, count):
    large = NativeReplica(spec, local_batch_size=16, kernels=kernels, dtype="float64")
    exact = NativeReplica(spec, local_batch_size=count, kernels=kernels, dtype="float64")
    gradients_after(large, batch)  # leaves foreign numbers in every lane
    large.initialize(0)
    part = batch[0][:count], batch[1][:count]
    np.testing.assert_allclose(gradients_after(large, part), gradients_after(exact, part), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(large.state.flat, exact.state.flat, rtol=1e-12)
    np.testing.assert_allclose(large.predict(part[0]), exact.predict(part[0]), rtol=1e-12)


@pytest.mark.parametrize("local_batch_size", [1, 5, 16, 100])
def test_evaluation_is_chunked(spec, batch, reference, local_batch_size):
    whole = NativeReplica(spec, local_batch_size=16, kernels=reference).evaluate(*batch)
    chunked = NativeReplica(spec, local_batch_size=local_batch_size, kernels=reference).evaluate(*batch)
    assert chunked.count == 16
    assert chunked.loss_sum == pytest.approx(whole.loss_sum, rel=1e-5)
    np.testing.assert_allclose(chunked.outputs, whole.outputs, rtol=1e-4, atol=1e-6)


def test_gradients_of_shards_add_up_to_those_of_the_batch(reference):
    spec = zoo.create("simplecnn", input_shape=(1, 12, 12))
    rng = np.random.default_rng(0)
    inputs, targets = rng.standard_normal((10, 1, 12, 12)), rng.integers(0, 10, 10)
    replica = NativeReplica(spec, local_batch_size=10, dtype="float64", kernels=reference)
    whole = gradients_after(replica, (inputs, targets))
    parts = [gradients_after(replica, (inputs[p], targets[p]), scale=0.1) for p in (slice(0, 3), slice(3, 10))]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-9, atol=1e-14)


def test_empty_batch_gives_zero_gradients_and_no_change(spec, batch, reference):
    replica = NativeReplica(spec, local_batch_size=16, kernels=reference)
    replica.loss_and_gradients(*batch)
    state = replica.state.flat.copy()
    result = replica.loss_and_gradients(batch[0][:0], batch[1][:0])
    assert (result.count, result.loss_sum, result.outputs.shape) == (0, 0.0, (0, 3))
    assert not replica.gradients.flat.any()
    np.testing.assert_array_equal(replica.state.flat, state)
    assert replica.predict(batch[0][:0]).shape == (0, 3)


def test_more_than_a_local_batch_is_refused_in_training(spec, batch, reference):
    replica = NativeReplica(spec, local_batch_size=8, kernels=reference)
    with pytest.raises(UsageError, match=r"16 samples .* local_batch_size 8"):
        replica.loss_and_gradients(*batch)


# -- memory ---------------------------------------------------------------------------------------------------------
def test_foreign_parameters_are_used_in_place(spec, batch, reference):
    own = NativeReplica(spec, local_batch_size=16, kernels=reference, seed=5)
    window = own.parameters.flat.copy()
    replica = NativeReplica(spec, local_batch_size=16, kernels=reference, parameters=window)
    assert all(np.shares_memory(view, window) for view in replica.parameters.views.values())
    np.testing.assert_array_equal(replica.predict(batch[0]), own.predict(batch[0]))
    window *= 2
    assert not np.array_equal(replica.predict(batch[0]), own.predict(batch[0]))


def test_foreign_gradients_are_a_row_of_somebody_elses_array(spec, batch, kernels):
    own = NativeReplica(spec, local_batch_size=16, kernels=kernels)
    rows = np.full((3, spec.num_parameters), np.nan, np.float32)
    replica = NativeReplica(spec, local_batch_size=16, kernels=kernels, gradients=rows[1])
    expected = gradients_after(own, batch)
    replica.loss_and_gradients(*batch)
    assert all(np.shares_memory(view, rows[1]) for view in replica.gradients.views.values())
    np.testing.assert_array_equal(rows[1], expected)
    assert np.isnan(rows[[0, 2]]).all()


def test_foreign_gradients_begin_as_zeros(spec, reference):
    foreign = np.full(spec.num_parameters, np.nan, np.float32)
    NativeReplica(spec, local_batch_size=16, kernels=reference, gradients=foreign)
    assert not foreign.any()


def test_gradients_at_any_place_in_memory_have_the_same_bits(spec, batch, kernels):
    expected = gradients_after(NativeReplica(spec, local_batch_size=16, kernels=kernels), batch)
    block = np.zeros(spec.num_parameters + 16, np.float32)
    for start in (1, 3, 8):
        foreign = block[start : start + spec.num_parameters]
        replica = NativeReplica(spec, local_batch_size=16, kernels=kernels, gradients=foreign)
        assert gradients_after(replica, batch).tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["too short", "another dtype", "strided", "two-dimensional"])
def test_foreign_gradients_of_another_kind_are_refused(spec, reference, kind):
    size = spec.num_parameters
    foreign = {
        "too short": np.zeros(size - 1, np.float32),
        "another dtype": np.zeros(size, np.float64),
        "strided": np.zeros((size, 2), np.float32)[:, 0],
        "two-dimensional": np.zeros((1, size), np.float32),
    }[kind]
    with pytest.raises(UsageError, match="expected a contiguous one-dimensional buffer"):
        NativeReplica(spec, kernels=reference, gradients=foreign)


def test_foreign_gradients_that_cannot_be_written_are_refused(spec, reference):
    foreign = np.zeros(spec.num_parameters, np.float32)
    foreign.flags.writeable = False
    with pytest.raises(UsageError, match="read-only"):
        NativeReplica(spec, kernels=reference, gradients=foreign)


def test_flat_buffers_follow_the_order_of_the_spec(spec, reference):
    replica = NativeReplica(spec, local_batch_size=8, kernels=reference)
    assert list(replica.parameters.views) == [info.name for info in spec.parameters]
    assert list(replica.state.views) == [info.name for info in spec.state]
    joined = np.concatenate([view.ravel() for view in replica.parameters.views.values()])
    np.testing.assert_array_equal(joined, replica.parameters.flat)


def test_foreign_parameters_of_another_size_are_refused(spec, reference):
    with pytest.raises(UsageError, match="expected a contiguous one-dimensional buffer"):
        NativeReplica(spec, kernels=reference, parameters=np.zeros(3, np.float32))


def test_steps_do_not_accumulate_memory(spec, batch, kernels):
    replica = NativeReplica(spec, local_batch_size=16, kernels=kernels)

    def steps(number):
        for step in range(number):
            replica.loss_and_gradients(*batch, step=step)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        grown = -steps(30) + steps(30)
    finally:
        tracemalloc.stop()
    assert grown < 2048


# -- errors ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(4, 2, 8, 7), (4, 128), (2, 8, 8), ()])
def test_inputs_of_another_shape_are_refused(spec, reference, shape):
    replica = NativeReplica(spec, local_batch_size=8, kernels=reference)
    with pytest.raises(DataError, match=r"expects \(n, 2, 8, 8\)"):
        replica.predict(np.zeros(shape, np.float32))


@pytest.mark.parametrize("dtype", ["int64", "complex128", "bool", "U1"])
def test_inputs_that_are_no_floating_numbers_are_refused(spec, reference, dtype):
    replica = NativeReplica(spec, local_batch_size=8, kernels=reference)
    with pytest.raises(DataError, match="expected floating"):
        replica.predict(np.zeros((4, 2, 8, 8), dtype))


@pytest.mark.parametrize("label", [-1, 3])
def test_class_out_of_range_is_refused_before_anything_changes(spec, batch, reference, label):
    replica = NativeReplica(spec, local_batch_size=16, kernels=reference)
    state = replica.state.flat.copy()
    targets = batch[1].copy()
    targets[4] = label
    with pytest.raises(DataError, match=f"class {label}; the network has classes 0 to 2"):
        replica.loss_and_gradients(batch[0], targets)
    np.testing.assert_array_equal(replica.state.flat, state)


@pytest.mark.parametrize(
    "targets", [np.zeros((16, 3), np.int64), np.zeros(15, np.int64), np.zeros(16), np.zeros((16, 3))]
)
def test_targets_of_another_kind_are_refused(spec, batch, reference, targets):
    replica = NativeReplica(spec, local_batch_size=16, kernels=reference)
    with pytest.raises(DataError, match=r"integer classes of shape \(16,\)"):
        replica.evaluate(batch[0], targets)


def test_unknown_loss_suggests_the_nearest(spec, reference):
    with pytest.raises(UnknownNameError, match="Did you mean 'binary_cross_entropy'"):
        NativeReplica(spec, loss="binary_cross_entrophy", kernels=reference)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local_batch_size": 0}, "local_batch_size is 0"),
        ({"local_batch_size": 2.5}, "2.5"),
        ({"dtype": "float16"}, "float16"),
    ],
)
def test_impossible_options_are_refused(spec, reference, options, message):
    with pytest.raises(UsageError, match=message):
        NativeReplica(spec, kernels=reference, **options)


def test_kernels_can_be_named(spec):
    assert NativeReplica(spec, local_batch_size=8, kernels="reference").kernels.name == "reference"


def test_bytes_are_taken_as_their_values(spec, reference):
    replica = NativeReplica(spec, local_batch_size=8, kernels=reference)
    images = np.random.default_rng(0).integers(0, 256, (3, 2, 8, 8), dtype=np.uint8)
    np.testing.assert_array_equal(replica.predict(images), replica.predict(images.astype(np.float32)))

"""What a plan is put together from: workloads, overlap, stragglers, memory, machines, quantities."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from scenarios import measured, scenario

from ringlet.bench.quantities import parse_rate, parse_seconds, parse_size, seconds_text, size_text
from ringlet.engines.native import Native, NativeReplica
from ringlet.errors import UsageError
from ringlet.models import zoo
from ringlet.planning.network import Cost, Message, exposed_cost, total_cost
from ringlet.planning.speed import described_speed, described_variation, interpolate, slowdown
from ringlet.planning.workload import Gradients, Workload, cut_buckets, describe_workload
from ringlet.strategies.ownership import buckets

times = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=50)


def workload(*tensors: tuple[int, float]) -> Workload:
    return Workload("test", tuple(Gradients(*tensor) for tensor in tensors), 0, "float32", 1, 1)


def test_gradients_become_final_from_the_last_layer_to_the_first():
    spec = zoo.create("vgg16", input_shape=(3, 32, 32), num_classes=10)
    ready = [tensor.ready for tensor in describe_workload(spec, "float32", 1).tensors]
    assert ready == sorted(ready, reverse=True)
    assert ready[0] == pytest.approx(1.0)
    assert ready[-1] > 1 / 3


def test_equal_pieces_are_ready_with_the_first_layer_that_they_touch():
    work = workload((6, 1.0), (2, 0.9), (5, 0.5))
    found = cut_buckets(work, 4, whole_tensors=False)
    assert found == [(1, 0.5), (4, 0.5), (4, 1.0), (4, 1.0)]


def test_whole_tensors_travel_together_up_to_the_size_and_large_ones_alone():
    work = workload((1, 1.0), (9, 0.9), (2, 0.6), (2, 0.5))
    assert cut_buckets(work, 4, whole_tensors=True) == [(4, 0.6), (9, 0.9), (1, 1.0)]


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), size=st.integers(1, 60), whole=st.booleans())
def test_messages_hold_every_gradient_once_and_leave_in_order(sizes, size, whole):
    work = workload(*((count, 1 - place / 100) for place, count in enumerate(sizes)))
    found = cut_buckets(work, size, whole_tensors=whole)
    assert sum(bucket.size for bucket in found) == sum(sizes)
    assert [bucket.ready for bucket in found] == sorted(bucket.ready for bucket in found)


def test_equal_pieces_are_those_of_training():
    spec = zoo.create("vgg1dobn")
    work = describe_workload(spec, "float32", 1)
    size = 4096 * 64
    own = [piece.size for piece in reversed(buckets(spec.num_parameters, 1))]
    assert [bucket.size for bucket in cut_buckets(work, size, whole_tensors=False)] == own


def test_what_is_exposed_of_messages_gives_hand_computed_values():
    messages = [Message(0.5, Cost(0.1, 0.4)), Message(1.0, Cost(0.1, 0.1))]
    assert exposed_cost(messages, 1.0).seconds == pytest.approx(0.2)  # 0.5-1.0, then 1.0-1.2
    assert exposed_cost(messages, 0.4).seconds == pytest.approx(0.5)  # 0.2-0.7, 0.7-0.9: 0.5 behind 0.4
    assert exposed_cost(messages, 1.0).latency == pytest.approx(0.2 * 0.2 / 0.7)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), max_size=20), st.floats(0.01, 10))
def test_overlap_never_exposes_more_than_all_messages(entries, seconds):
    messages = [Message(ready, Cost(latency, transfer)) for ready, latency, transfer in entries]
    assert exposed_cost(messages, seconds).seconds <= total_cost(messages).seconds * (1 + 1e-9)


@given(times, st.integers(0, 1000), st.sampled_from([1, 2, 16, 300]), st.sampled_from([1, 4]))
@settings(max_examples=25)
def test_the_simulation_of_stragglers_is_the_same_for_the_same_seed(sample, seed, count, every):
    first = slowdown(sample, count, every=every, seed=seed)
    assert first == slowdown(sample, count, every=every, seed=seed)
    assert 1.0 <= first <= max(sample) / (sum(sample) / len(sample)) + 1e-9


def test_the_slowest_of_two_coins_is_known():
    found = slowdown([1.0, 3.0], 2)  # 1 in a quarter of the cases, else 3; the mean is 2
    assert found == pytest.approx(2.5 / 2, rel=0.05)
    assert slowdown([1.0, 3.0], 4096) == pytest.approx(1.5)


def test_waiting_grows_with_workers_and_shrinks_with_longer_blocks():
    sample = described_variation(0.1).tolist()
    growing = [slowdown(sample, count) for count in (1, 2, 16, 256, 4096)]
    assert growing == sorted(growing)
    assert growing[0] == 1.0
    assert slowdown(sample, 256, every=10) < 1 + (growing[3] - 1) / 2


def test_a_described_variation_has_its_mean_and_deviation():
    values = described_variation(0.1)
    assert values.mean() == pytest.approx(1.0)
    assert values.std() == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("model", "batch"), [("simplecnn", 5), ("vgg1dobn", 32)])
def test_activations_of_the_native_engine_are_those_of_its_plan(model, batch, dtype):
    spec = zoo.create(model)
    found = Native().activation_bytes(spec, batch, dtype, "categorical_cross_entropy")
    assert found == NativeReplica(spec, local_batch_size=batch, dtype=dtype).plan.memory_bytes


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from(["native", "torch"]))
@settings(max_examples=30, deadline=None)
def test_memory_grows_with_the_batch(first, second, engine):
    found = [scenario(engine=engine).memory(2, batch).total for batch in sorted((first, second))]
    assert found[0] <= found[1]


def test_memory_of_a_worker_gives_hand_computed_values():
    spec = zoo.create("simplecnn")
    one, two = (scenario(machine=measured(), workers_per_machine=2).memory(count, 32) for count in (1, 2))
    assert one.parameters == one.gradients == 4 * spec.num_parameters
    assert one.optimizer == 8 * spec.num_parameters
    assert (two.parameters, two.gradients, two.optimizer) == (one.parameters, one.gradients, one.optimizer // 2)
    assert one.batches == 3 * 32 * 28 * 28 * 4


def test_workers_share_the_parameters_of_a_large_network():
    one, two = (scenario("alexnet", machine=measured(), workers_per_machine=2).memory(count, 32) for count in (1, 2))
    assert two.parameters == one.parameters // 2
    assert two.gradients == one.gradients


def test_a_measured_machine_interpolates_and_extrapolates_workers():
    machine = measured(passes={1: [1.0], 4: [1.6]}, cores=8)
    found = [machine.pass_seconds(count, 32) for count in (1, 2, 4, 8, 16)]
    assert found == pytest.approx([1.0, 1.2, 1.6, 2.4, 4.8])


def test_time_of_a_pass_has_a_fixed_part_where_two_batches_were_measured():
    machine = measured(other_batch=(8, 0.4), passes={1: [1.0]})
    assert [machine.pass_seconds(1, batch) for batch in (8, 16, 32, 64)] == pytest.approx([0.4, 0.6, 1.0, 1.8])
    assert measured(passes={1: [1.0]}).pass_seconds(1, 16) == pytest.approx(0.5)


def test_points_are_joined_by_lines():
    points = [(10, 1.0), (20, 3.0)]
    assert [interpolate(points, place) for place in (0, 10, 15, 20, 40)] == pytest.approx([1.0, 1.0, 2.0, 3.0, 6.0])


def test_workers_of_a_described_machine_do_not_slow_each_other_down():
    machine = described_speed(0.1, 32, 0.02)
    assert machine.pass_seconds(8, 32) == pytest.approx(0.1)
    assert np.std(machine.sample(8)) == pytest.approx(0.002, rel=0.05)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_seconds, "20us", 20e-6),
        (parse_seconds, "1.5 ms", 1.5e-3),
        (parse_seconds, "0.25", 0.25),
        (parse_rate, "25Gbit/s", 3.125e9),
        (parse_rate, "25Gb/s", 3.125e9),
        (parse_rate, "3GB/s", 3e9),
        (parse_rate, "100Mbps", 12.5e6),
        (parse_size, "64M", 64 << 20),
        (parse_size, "16GiB", 16 << 30),
        (parse_size, "1000", 1000),
    ],
)
def test_quantities_are_read_as_people_write_them(parse, text, value):
    assert parse("x", text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_seconds, text) for text in ("fast", "3 m", "1e999", "-1")),
        *((parse_rate, text) for text in ("25", "25Gbit")),
        *((parse_size, text) for text in ("0", "-1", "4 parsec")),
    ],
)
def test_other_texts_are_refused_with_an_example(parse, text):
    with pytest.raises(UsageError, match="expected"):
        parse("x", text)


def test_quantities_are_shown_with_three_digits():
    shown = [seconds_text(value) for value in (1.234e-5, 0.0456, 7.0, 99.94, 125.0, 7500.0)]
    assert shown == ["12.3 us", "45.6 ms", "7.00 s", "99.9 s", "2 min 05 s", "2 h 05 min"]
    assert [size_text(value) for value in (0, 512, 2048, 60e6)] == ["0 B", "512 B", "2.00 kB", "57.2 MB"]
    assert all(left != right for left, right in pairwise(shown))


def test_turns_that_differ_widen_the_range_of_a_speed_up():
    quiet = measured(turns={1: [0.01, 0.01, 0.01], 2: [0.011, 0.011, 0.011]})
    assert (quiet.unrest, quiet.speed_up_range(2)) == (0.0, (1.0, 1.0))
    busy = measured(turns={1: [0.01, 0.01, 0.01], 2: [0.010, 0.0125, 0.02]})
    low, high = busy.speed_up_range(2)
    assert (low, high) == (pytest.approx(0.0125 / 0.02), pytest.approx(0.0125 / 0.01))
    assert busy.unrest == pytest.approx(0.4)
    assert busy.speed_up_range(1) == (1.0, 1.0)


def test_what_slows_one_worker_and_two_alike_cancels_out():
    busy = measured(turns={1: [0.01, 0.02, 0.03], 2: [0.011, 0.022, 0.033]})
    assert busy.speed_up_range(2) == (pytest.approx(1.0), pytest.approx(1.0))
    assert busy.unrest == pytest.approx(0.5)


def test_a_machine_that_was_not_measured_in_turns_has_no_range():
    assert described_speed(0.1, 32, 0.02).speed_up_range(8) == (1.0, 1.0)

import gc
import threading
import weakref
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.data import Batch, BatchLoader, Normalization, partition
from ringlet.data import loader as loading
from ringlet.errors import ConfigError, DataError


@pytest.fixture
def every_batch_is_slow(monkeypatch) -> None:
    monkeypatch.setattr(loading, "QUICK", -1.0)


@pytest.fixture
def every_batch_is_quick(monkeypatch) -> None:
    monkeypatch.setattr(loading, "QUICK", float("inf"))


def prefetch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ringlet-prefetch"]


def take(batches: Iterator[Batch], count: int) -> list[Batch]:
    return list(islice(batches, count))


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), batch=st.integers(1, 20), size=st.integers(1, 5), epoch=st.integers(0, 3))
def test_the_shares_of_all_ranks_together_are_the_global_batches(n, batch, size, epoch, recording_source) -> None:
    source = recording_source(n)
    order = partition.order(n, 9, epoch)
    loaders = [
        BatchLoader(source, global_batch_size=batch, seed=9, num_shards=size, shards=range(rank, rank + 1), prefetch=0)
        for rank in range(size)
    ]
    for step, shares in enumerate(zip(*(loader.epoch(epoch) for loader in loaders), strict=True)):
        joined = np.concatenate([share.indices for share in shares])
        np.testing.assert_array_equal(joined, order[step * batch : (step + 1) * batch])
        assert all(share.num_global == len(joined) for share in shares)


def test_a_rank_reads_only_its_own_samples(recording_source) -> None:
    source = recording_source(20)
    loader = BatchLoader(source, global_batch_size=8, seed=1, num_shards=2, shards=range(1, 2))
    own = [index for batch in loader.epoch(0) for index in batch.indices.tolist()]
    assert source.read_indices == own
    assert len(own) == 10


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    batch=st.integers(1, 20),
    num_shards=st.integers(1, 6),
    size=st.integers(1, 6),
    partitioning=st.sampled_from(partition.PARTITIONS),
)
def test_a_shard_has_the_same_samples_on_any_number_of_ranks(
    n, batch, num_shards, size, partitioning, recording_source
) -> None:
    size, batch = min(size, num_shards), max(batch, num_shards)

    def shards_of(num_ranks: int) -> list[dict[int, list[int]]]:
        steps: list[dict[int, list[int]]] = []
        for rank in range(num_ranks):
            loader = BatchLoader(
                recording_source(n),
                global_batch_size=batch,
                seed=3,
                num_shards=num_shards,
                shards=range(*partition.bounds(num_shards, rank, num_ranks)),
                partition=partitioning,
                prefetch=0,
            )
            for step, share in enumerate(loader.epoch(1)):
                if step == len(steps):
                    steps.append({})
                steps[step] |= {piece.shard: share.indices[piece.start : piece.stop].tolist() for piece in share.pieces}
        return steps

    alone, together = shards_of(1), shards_of(size)
    assert alone == together
    read = [index for step in alone for samples in step.values() for index in samples]
    num_copies = num_shards if partitioning == "replicated" else 1
    assert sorted(read) == sorted(num_copies * list(range(n)))


def test_contiguous_shards_without_samples_are_refused(recording_source) -> None:
    with pytest.raises(ConfigError, match="without samples"):
        BatchLoader(recording_source(23), global_batch_size=2, num_shards=3, partition="contiguous")


def test_replicated_shards_read_all_samples_each_in_an_order_of_its_own(recording_source) -> None:
    loader = BatchLoader(recording_source(9), global_batch_size=4, num_shards=2, partition="replicated", seed=1)
    batches = list(loader.epoch(0))
    orders = [
        [index for batch in batches for index in batch.indices[slice(*batch.pieces[shard][1:])].tolist()]
        for shard in (0, 1)
    ]
    assert [sorted(order) for order in orders] == [list(range(9))] * 2
    assert orders[0] != orders[1]
    assert (loader.num_steps, loader.num_samples) == (5, 18)


def test_contiguous_shards_stay_in_their_block_and_are_shuffled_there_every_epoch(recording_source) -> None:
    def epoch(shard: int, number: int) -> list[int]:
        loader = BatchLoader(
            recording_source(23),
            global_batch_size=6,
            num_shards=3,
            shards=range(shard, shard + 1),
            partition="contiguous",
        )
        return [index for batch in loader.epoch(number) for index in batch.indices.tolist()]

    for shard, block in enumerate([(0, 8), (8, 16), (16, 23)]):
        orders = [epoch(shard, number) for number in (0, 1)]
        assert [sorted(order) for order in orders] == [list(range(*block))] * 2
        assert orders[0] != orders[1] != sorted(orders[1])


@pytest.mark.usefixtures("every_batch_is_slow")
@pytest.mark.parametrize("prefetch", [0, 1, 2, 7])
def test_batches_do_not_depend_on_how_many_are_made_ahead(prefetch: int, recording_source) -> None:
    loader = BatchLoader(recording_source(23), global_batch_size=5, seed=4, prefetch=prefetch)
    got = [(batch.step_in_epoch, batch.indices.tolist(), batch.inputs.tobytes()) for batch in loader.epoch(2)]
    again = BatchLoader(recording_source(23), global_batch_size=5, seed=4, prefetch=0)
    assert got == [(batch.step_in_epoch, batch.indices.tolist(), batch.inputs.tobytes()) for batch in again.epoch(2)]


@pytest.mark.parametrize("start", [0, 1, 3, 5])
def test_an_epoch_continues_at_any_step(start: int, recording_source) -> None:
    loader = BatchLoader(recording_source(23), global_batch_size=5, seed=4)
    whole = [batch.indices.tolist() for batch in loader.epoch(1)]
    assert [batch.indices.tolist() for batch in loader.epoch(1, start_step=start)] == whole[start:]


def test_a_start_beyond_the_epoch_is_refused(recording_source) -> None:
    with pytest.raises(ConfigError, match="start_step"):
        BatchLoader(recording_source(10), global_batch_size=5).epoch(0, start_step=3)


def test_steps_are_counted_with_the_ragged_batch_or_without(recording_source) -> None:
    source = recording_source(23)
    assert BatchLoader(source, global_batch_size=5).num_steps == 5
    assert BatchLoader(source, global_batch_size=5, drop_last=True).num_steps == 4
    limited = BatchLoader(source, global_batch_size=5, max_steps=2)
    assert limited.num_steps == len(list(limited.epoch(0))) == 2
    assert limited.num_samples == 10
    assert BatchLoader(source, global_batch_size=5).num_samples == 23
    assert BatchLoader(source, global_batch_size=5, drop_last=True).num_samples == 20


def test_without_shuffling_samples_come_in_their_own_order(recording_source) -> None:
    loader = BatchLoader(recording_source(11), global_batch_size=4, shuffle=False)
    assert np.concatenate([batch.indices for batch in loader.epoch(5)]).tolist() == list(range(11))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inputs_are_normalised_in_the_type_asked_for(dtype: str, recording_source) -> None:
    loader = BatchLoader(recording_source(6), global_batch_size=6, normalization=Normalization(0.5), dtype=dtype)
    batch = next(loader.epoch(0))
    assert batch.inputs.dtype == dtype
    assert batch.targets.dtype == np.int64
    np.testing.assert_allclose(batch.inputs[:, 0, 0, 0], batch.indices * 6 * 0.5)


@pytest.mark.usefixtures("every_batch_is_slow")
def test_slow_batches_are_made_ahead_from_the_fourth_on_and_in_later_epochs_at_once(recording_source) -> None:
    batches = BatchLoader(recording_source(1000), global_batch_size=1)
    first = batches.epoch(0)
    for _ in range(3):
        next(first)
        assert prefetch_threads() == []
    next(first)
    assert len(prefetch_threads()) == 1
    first.close()
    second = batches.epoch(1)
    next(second)
    assert len(prefetch_threads()) == 1
    second.close()


@pytest.mark.usefixtures("every_batch_is_quick")
def test_quick_batches_need_no_thread(recording_source) -> None:
    for batch in BatchLoader(recording_source(20), global_batch_size=1).epoch(0):
        assert prefetch_threads() == []
        assert len(batch) == 1


def test_single_slow_batches_do_not_start_a_thread(recording_source, monkeypatch) -> None:
    now = 0.0
    monkeypatch.setattr(loading, "perf_counter", lambda: now)

    class Hesitant(recording_source):
        def read(self, indices):
            nonlocal now
            now += 2 * loading.QUICK if indices[0] % 4 == 0 else 0.0
            return super().read(indices)

    for _ in BatchLoader(Hesitant(20), global_batch_size=1, shuffle=False).epoch(0):
        assert prefetch_threads() == []


@pytest.mark.usefixtures("every_batch_is_slow")
def test_leaving_early_ends_the_thread(recording_source) -> None:
    batches = BatchLoader(recording_source(1000), global_batch_size=1).epoch(0)
    take(batches, 4)
    assert len(prefetch_threads()) == 1
    batches.close()
    assert prefetch_threads() == []


@pytest.mark.usefixtures("every_batch_is_slow")
def test_a_forgotten_epoch_ends_its_thread(recording_source) -> None:
    batches = BatchLoader(recording_source(1000), global_batch_size=1).epoch(0)
    take(batches, 4)
    alive = weakref.ref(batches)
    del batches
    gc.collect()
    assert alive() is None
    assert prefetch_threads() == []


def test_an_epoch_that_was_never_begun_has_no_thread(recording_source) -> None:
    batches = BatchLoader(recording_source(10), global_batch_size=1).epoch(0)
    assert prefetch_threads() == []
    batches.close()


@pytest.mark.usefixtures("every_batch_is_slow")
def test_an_error_in_the_thread_reaches_the_consumer_after_the_good_batches(recording_source) -> None:
    class Failing(recording_source):
        def read(self, indices):
            if 16 in indices:
                raise DataError("sample 16 is damaged")
            return super().read(indices)

    batches = BatchLoader(Failing(20), global_batch_size=2, shuffle=False).epoch(0)
    assert [batch.indices[0] for batch in take(batches, 8)] == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(DataError, match="sample 16"):
        next(batches)
    assert prefetch_threads() == []


@pytest.mark.usefixtures("every_batch_is_slow")
def test_the_thread_reads_no_more_than_asked_ahead(recording_source) -> None:
    source = recording_source(100)
    batches = BatchLoader(source, global_batch_size=1, prefetch=3, shuffle=False).epoch(0)
    take(batches, 4)
    batches.close()
    assert len(source.read_indices) <= 8


def test_neither_loader_nor_thread_touches_the_global_random_state(recording_source) -> None:
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.RandomState(7).rand(3)
    list(BatchLoader(recording_source(50), global_batch_size=4, seed=1).epoch(0))
    np.testing.assert_array_equal(np.random.rand(3), expected)  # noqa: NPY002


def test_two_epochs_at_once_do_not_disturb_each_other(recording_source) -> None:
    loader = BatchLoader(recording_source(30), global_batch_size=4, seed=2)
    alone = [batch.indices.tolist() for batch in loader.epoch(0)]
    mixed = [first.indices.tolist() for first, _ in zip(loader.epoch(0), loader.epoch(1), strict=True)]
    assert mixed == alone


@pytest.mark.parametrize(
    "options",
    [
        {"global_batch_size": 0},
        {"prefetch": -1},
        {"max_steps": -1},
        {"dtype": "float16"},
        {"num_shards": 2, "shards": range(2, 3)},
    ],
)
def test_impossible_options_of_a_loader_are_refused(options: dict[str, object], recording_source) -> None:
    with pytest.raises(Exception, match="expected"):
        BatchLoader(recording_source(10), **({"global_batch_size": 2} | options))


def test_no_complete_batch_is_an_error_rather_than_an_empty_epoch(recording_source) -> None:
    with pytest.raises(DataError, match="no complete batch"):
        BatchLoader(recording_source(3), global_batch_size=4, drop_last=True)


def test_an_empty_source_is_an_error(recording_source) -> None:
    with pytest.raises(DataError, match="no samples"):
        BatchLoader(recording_source(0), global_batch_size=4)

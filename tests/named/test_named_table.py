"""The state machine and its language, without ranks: random submissions, fed to the tables of all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.named.reductions import Reduction
from ringlet.named.signatures import Signature, decode
from ringlet.named.submissions import NO_NUMBER, Key, split_name
from ringlet.named.table import Announcement, Exchange, Known, Table, record_words

some_examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)


# -- names and signatures ----------------------------------------------------------------------------------------------
@given(st.text() | st.from_regex(r"[a-z.]*[0-9]{0,12}", fullmatch=True))
@some_examples
def test_a_name_is_what_its_parts_say(name):
    key = split_name(name)
    assert str(key) == name
    assert 0 <= key.number <= NO_NUMBER


def test_names_that_differ_have_parts_that_differ():
    names = ["", "0", "00", "7", "07", "a", "a7", "a07", "a.7", "a.70", "a.4294967295", "a.99999999999", "a²", "a٣"]
    assert len({split_name(name) for name in names}) == len(names)
    assert split_name("allreduce.noname.12") == Key("allreduce.noname.", 12)


signatures = st.builds(
    Signature,
    stem=st.text(max_size=8),
    kind=st.sampled_from(["allreduce", "allgather", "broadcast"]),
    arrays=st.lists(
        st.tuples(st.sampled_from(["float32", "bfloat16", ">i4"]), st.lists(st.integers(0, 9), max_size=3).map(tuple)),
        max_size=3,
    ).map(tuple),
    op=st.sampled_from(Reduction),
    prescale=st.floats(allow_nan=False),
    postscale=st.floats(allow_nan=False, allow_infinity=False),
    root=st.integers(0, 99),
    detail=st.just(()) | st.tuples(st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 9)),
    refusal=st.text(max_size=9),
)


@given(signatures, signatures)
@some_examples
def test_signatures_come_back_and_their_texts_are_equal_if_they_are(first, second):
    assert decode(first.encode()) == first
    assert decode(first.encode()).encode() == first.encode()
    assert (first.encode() == second.encode()) == (first == second and _bits(first) == _bits(second))
    assert first.words()


def _bits(signature: Signature) -> tuple[str, str]:
    """Zeros have two signs."""
    return signature.prescale.hex(), signature.postscale.hex()


# -- the language of rounds --------------------------------------------------------------------------------------------
class Nobody:
    """A communicator of which only the size matters."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def make_signature(number: int) -> Signature:
    return Signature(f"name {number}.", "allreduce", (("float32", (number,)),))


@given(
    size=st.integers(1, 4),
    rounds=st.lists(st.lists(st.lists(st.integers(0, 11), max_size=6), min_size=4, max_size=4), max_size=8),
    capacity=st.integers(1, 8),
    data=st.data(),
)
@some_examples
def test_everybody_understands_what_everybody_told(size, rounds, capacity, data):
    """With few numbers to give away, so that signatures lose theirs again and again."""
    exchanges = [Exchange(Nobody(rank, size), Known(capacity)) for rank in range(size)]  # type: ignore[arg-type]
    for told in rounds:
        requests = [[(make_signature(kind).encode(), kind * 7) for kind in kinds] for kinds in told[:size]]
        withdrawn = data.draw(st.lists(st.tuples(st.builds(Key, st.text(), st.integers(0, 9)), st.text()), max_size=2))
        flags = data.draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=size, max_size=size))
        records = np.zeros((size, record_words(size)), np.int64)
        texts = []
        for rank, exchange in enumerate(exchanges):
            words, text = exchange.encode(requests[rank], withdrawn, joins=flags[rank][0], leaves=flags[rank][1])
            records[rank, : len(words)] = words
            texts.append(text)
        for exchange in exchanges:
            for rank, heard in enumerate(exchange.decode(records, texts)):
                told_set = sorted((text, name) for text, name in requests[rank])
                assert sorted((signature.encode(), name) for signature, name in heard.submissions) == told_set
                assert heard.withdrawn == withdrawn
                assert (heard.joins, heard.leaves) == flags[rank]


def test_a_crowd_of_known_requests_finds_room_in_the_text():
    exchange = Exchange(Nobody(0, 1), Known())  # type: ignore[arg-type]
    text = make_signature(1).encode()
    exchange._known.learn(text)
    requests = [(text, number) for number in range(500)]
    words, more = exchange.encode(requests, [], joins=False, leaves=False)
    assert len(words) == record_words(1)
    assert more
    records = np.zeros((1, record_words(1)), np.int64)
    records[0, : len(words)] = words
    [heard] = exchange.decode(records, [more])
    assert [number for _, number in heard.submissions] == list(range(500))


def test_known_requests_need_no_text():
    exchange = Exchange(Nobody(0, 2), Known())  # type: ignore[arg-type]
    text = make_signature(1).encode()
    assert exchange.encode([(text, 5)], [], joins=False, leaves=False)[1]
    exchange._known.learn(text)
    assert exchange.encode([(text, 6)], [], joins=False, leaves=False)[1] == b""


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 5))
@some_examples
def test_numbers_are_never_shared_and_the_oldest_is_forgotten_first(kinds, capacity):
    known = Known(capacity)
    recent: list[int] = []
    for kind in kinds:
        text = make_signature(kind).encode()
        number = known.number(text)
        assert (number is not None) == (kind in recent)
        assert known.learn(text) == make_signature(kind)
        recent = [*(other for other in recent if other != kind), kind][-capacity:]
        numbers = [known.number(make_signature(other).encode()) for other in recent]
        assert None not in numbers
        assert len(set(numbers)) == len(numbers) <= capacity
        assert all(number is not None and number < capacity for number in numbers)


# -- the state machine -------------------------------------------------------------------------------------------------
class Model:
    """Ranks that submit names in orders of their own, some per round, and may join in the end."""

    def __init__(self, data: Any) -> None:
        self.size = data.draw(st.integers(1, 4), "size")
        names = data.draw(st.integers(0, 8), "names")
        self.steps = [data.draw(st.integers(0, names), "steps") for _ in range(self.size)]
        self.joins = data.draw(st.booleans(), "joins")
        if not self.joins:
            self.steps = [names] * self.size
        self.queues = [list(data.draw(st.permutations(range(steps)))) for steps in self.steps]
        self.table = Table(range(self.size))
        self.joined: set[int] = set()
        self.submitted: list[set[int]] = [set() for _ in range(self.size)]

    def next_announcements(self, data: Any) -> list[Announcement]:
        told = []
        for rank, queue in enumerate(self.queues):
            count = data.draw(st.integers(0, len(queue)))
            now, self.queues[rank] = queue[:count], queue[count:]
            self.submitted[rank] |= set(now)
            joins = self.joins and not self.queues[rank] and rank not in self.joined and data.draw(st.booleans())
            if joins:
                self.joined.add(rank)
            told.append(Announcement([(_signature(), number) for number in now], joins=joins))
        return told


def _signature() -> Signature:
    return Signature("step.", "allreduce", (("float32", (2,)),))


@given(st.data())
@some_examples
def test_an_operation_runs_once_and_as_soon_as_all_that_have_not_joined_have_submitted_it(data):
    model = Model(data)
    done: list[int] = []
    last = None
    for _ in range(200):
        told = model.next_announcements(data)
        outcome = model.table.advance(told)
        for operation in outcome.decided:
            number = operation.key.number
            assert not operation.failure
            assert number not in done
            done.append(number)
            assert {rank for rank in range(model.size) if number in model.submitted[rank]} == set(operation.signatures)
        everywhere = [
            number
            for number in set().union(*model.submitted)
            if all(number in model.submitted[rank] or rank in model.joined for rank in range(model.size))
        ]
        assert sorted(done) == sorted(everywhere)
        if len(model.joined) == model.size:
            last = outcome.last_joined
            assert last in range(model.size)
            assert told[last].joins
            break
        assert outcome.last_joined is None
        if not model.joins and not any(model.queues):
            break
    else:
        return  # the ranks took their time
    assert sorted(done) == list(range(max(model.steps, default=0)))
    assert not model.table.waiting
    assert not model.table.joined


@given(st.data())
@some_examples
def test_the_short_way_decides_as_the_long_way_does(data):
    """When all say the same the table takes a short cut; a rank that says it one round later forces the long way."""
    size = data.draw(st.integers(2, 4))
    kinds = data.draw(st.lists(st.integers(0, 5), unique=True, min_size=1))
    refused = data.draw(st.sets(st.sampled_from(kinds)))
    requests = [(Signature("s.", "allreduce", refusal="no" if kind in refused else ""), kind) for kind in kinds]
    short, long = Table(range(size)), Table(range(size))
    at_once = short.advance([Announcement(list(requests)) for _ in range(size)])
    assert not long.advance([Announcement(list(requests))] + [Announcement() for _ in range(size - 1)]).decided
    later = long.advance([Announcement()] + [Announcement(list(requests)) for _ in range(size - 1)])
    assert [(each.key, each.signatures, each.failure) for each in at_once.decided] == [
        (each.key, each.signatures, each.failure) for each in later.decided
    ]


def test_a_withdrawn_operation_fails_for_those_who_submitted_it_and_may_come_again():
    table = Table([10, 20, 30])
    told = Announcement([(_signature(), 1)])
    table.advance([told, Announcement(), told])
    key = Key("step.", 1)
    assert table.missing(table.waiting[key]) == [1]
    outcome = table.advance([Announcement(withdrawn=[(key, "too late")]), Announcement(), Announcement()])
    [failed] = outcome.decided
    assert (failed.failure, failed.wrong_arguments, set(failed.signatures)) == ("too late", False, {0, 2})
    assert not table.waiting
    [done] = table.advance([told, told, told]).decided
    assert not done.failure


def test_an_operation_that_becomes_complete_is_not_withdrawn():
    table = Table([0, 1])
    told = Announcement([(_signature(), 1)])
    table.advance([told, Announcement()])
    late = Announcement(withdrawn=[(Key("step.", 1), "too late")])
    [done] = table.advance([late, told]).decided
    assert not done.failure


def test_a_round_is_quiet_if_nobody_has_anything():
    table = Table([0, 1])
    silence = [Announcement(), Announcement()]
    assert table.advance(silence).quiet
    assert not table.advance([Announcement([(_signature(), 1)]), Announcement()]).quiet
    assert not table.advance([Announcement(joins=True), Announcement()]).quiet
    assert not table.advance([Announcement(leaves=True), Announcement()]).quiet

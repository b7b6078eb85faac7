"""Positions as Spark keeps them.

From one position of a stream to the next, whatever has happened to its topics.

What tasks read, cut into pieces.

The limit of a trigger, shared out.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import LocalError
from headrace.spark import offsets
from headrace.spark.errors import DataLossError, LossPolicy, RecreatedTopicError
from headrace.spark.offsets import (
    OffsetRange,
    SourcePartition,
    batch_ranges,
    from_json,
    shares,
    shares_by_bytes,
    split_ranges,
    to_json,
)


def test_should_be_the_same_text_when_they_are_the_same() -> None:
    offsets = {SourcePartition("b", "u2", 10): 7, SourcePartition("b", "u2", 9): 8, SourcePartition("a", "u1", 0): 1}
    document = to_json(offsets)
    assert json.dumps(document) == (
        '{"a": {"uid": "u1", "offsets": {"0": 1}}, "b": {"uid": "u2", "offsets": {"9": 8, "10": 7}}}'
    )
    assert from_json(json.loads(json.dumps(document))) == offsets
    assert json.dumps(to_json(from_json(document))) == json.dumps(document)


@pytest.mark.parametrize("document", [{"a": {"0": 1}}, {"a": 5}, {"a": {"uid": "u", "offsets": {"x": 1}}}, {"a": None}])
def test_should_refuse_what_another_source_has_written(document: dict[str, object]) -> None:
    with pytest.raises(LocalError, match="is it the checkpoint of another source"):
        from_json(document)


_OLD, _NEW, _MORE = (
    SourcePartition("flights", "u1", 0),
    SourcePartition("flights", "u2", 0),
    SourcePartition("flights", "u1", 1),
)
_STRICT, _LENIENT, _RESTARTING = LossPolicy(), LossPolicy(fails=False), LossPolicy(starts_over=True)


def test_should_go_on_where_it_was_when_nothing_has_changed() -> None:
    assert offsets.positions_kept({_OLD: 5}, {_OLD: 9, _MORE: 3}, _STRICT) == {_OLD: 5}


def test_should_go_on_at_the_end_when_the_log_ends_earlier() -> None:
    with pytest.raises(DataLossError, match="offset 5 of flights/0 is not there any more: its log ends at 3"):
        offsets.positions_kept({_OLD: 5}, {_OLD: 3}, _STRICT)
    assert offsets.positions_kept({_OLD: 5}, {_OLD: 3}, _LENIENT) == {_OLD: 3}


def test_should_start_over_only_when_that_is_wanted_of_a_new_topic() -> None:
    for policy in (_STRICT, _LENIENT):
        with pytest.raises(RecreatedTopicError, match="set onTopicRecreated=restart"):
            offsets.positions_kept({_OLD: 5}, {_NEW: 1}, policy)
    assert offsets.positions_kept({_OLD: 5}, {_NEW: 1}, _RESTARTING) == {}


def test_should_tell_of_a_topic_that_is_not_read_any_more() -> None:
    with pytest.raises(DataLossError, match="topic flights, or a partition of it, is not read any more"):
        offsets.positions_kept({_OLD: 5}, {}, _STRICT)
    assert offsets.positions_kept({_OLD: 5}, {}, _LENIENT) == {}


def test_should_miss_the_beginning_of_a_partition_only_when_its_topic_was_read_before() -> None:
    end = {_OLD: 5, _MORE: 9}
    with pytest.raises(DataLossError, match="partition flights/1 was added, and its offsets 0 to 4 are gone"):
        offsets.micro_batch_ranges({_OLD: 5}, end, {_MORE: 4}, _STRICT)
    assert offsets.micro_batch_ranges({_OLD: 2}, end, {_MORE: 0}, _STRICT) == [
        OffsetRange(_OLD, 2, 5),
        OffsetRange(_MORE, 0, 9),
    ]
    assert offsets.micro_batch_ranges({}, {_MORE: 9}, {_MORE: 4}, _STRICT) == [OffsetRange(_MORE, 4, 9)]


def test_should_plan_what_is_there_when_more_was_asked_for() -> None:
    assert batch_ranges({_OLD: 1}, {_OLD: 9}, {_OLD: 3}, {_OLD: 7}, _LENIENT) == [OffsetRange(_OLD, 3, 7)]
    with pytest.raises(DataLossError, match="offsets 1 to 3 of flights/0 are gone"):
        batch_ranges({_OLD: 1}, {_OLD: 9}, {_OLD: 3}, {_OLD: 9}, _STRICT)
    with pytest.raises(DataLossError, match="offset 9 of flights/0 is not there: its log ends at 7"):
        batch_ranges({_OLD: 9}, {_OLD: 9}, {}, {_OLD: 7}, _STRICT)


_LONG, _SHORT = SourcePartition("flights", "u", 0), SourcePartition("flights", "u", 1)


def test_should_leave_out_what_is_empty() -> None:
    assert split_ranges([OffsetRange(_LONG, 5, 5), OffsetRange(_SHORT, 7, 3)]) == []


def test_should_give_more_tasks_to_the_longer_one_when_there_are_to_be_more() -> None:
    cut = split_ranges([OffsetRange(_LONG, 0, 90), OffsetRange(_SHORT, 10, 40)], min_partitions=4)
    assert [(each.partition.number, each.start, each.end) for each in cut] == [
        (0, 0, 30),
        (0, 30, 60),
        (0, 60, 90),
        (1, 10, 40),
    ]


def test_should_cut_evenly_when_tasks_are_to_be_small() -> None:
    assert [each.size for each in split_ranges([OffsetRange(_LONG, 0, 10)], max_records=4)] == [3, 3, 4]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), max_size=8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 5000),
)
def test_should_cover_all_once(bounds: list[tuple[int, int]], least: int | None, most: int | None) -> None:
    if most is not None:
        bounds = [(start, min(size, most * 20)) for start, size in bounds]
    ranges = [OffsetRange(SourcePartition("t", "u", number), at, at + size) for number, (at, size) in enumerate(bounds)]
    cut = split_ranges(ranges, min_partitions=least, max_records=most)
    for whole in ranges:
        pieces = [each for each in cut if each.partition == whole.partition]
        ends = [whole.start, *(each.end for each in pieces)]
        assert [each.start for each in pieces] == ends[:-1]
        assert ends[-1] == whole.end or not pieces
        assert sum(each.size for each in pieces) == whole.size
    assert most is None or all(0 < each.size <= most for each in cut)
    assert least is None or len(cut) >= min(least, sum(each.size for each in ranges))


_WAITING = st.dictionaries(st.integers(0, 50), st.integers(0, 10**9), max_size=20)


def test_should_share_by_what_waits_when_there_is_more_than_the_limit() -> None:
    assert shares({"a": 300, "b": 100, "c": 0}, 40) == {"a": 30, "b": 10}


def test_should_take_all_when_that_is_within_the_limit() -> None:
    assert shares({"a": 3, "b": 4}, 7) == {"a": 3, "b": 4}


def test_should_give_one_at_least_when_another_is_far_longer() -> None:
    assert shares({"short": 1, "long": 10**9}, 100) == {"short": 1, "long": 99}


def test_should_serve_the_longest_when_the_limit_is_below_their_number() -> None:
    assert shares({"a": 1, "b": 9, "c": 5}, 2) == {"b": 1, "c": 1}


@given(_WAITING, st.integers(1, 10**6))
def test_should_use_the_limit_up_and_no_more(waiting: dict[int, int], limit: int) -> None:
    taken = shares(waiting, limit)
    assert sum(taken.values()) == min(limit, sum(waiting.values()))
    assert all(0 < count <= waiting[each] for each, count in taken.items())


@given(st.integers(1, 10**6), st.lists(st.integers(1, 10**6), min_size=2, max_size=10))
def test_should_be_fair_when_all_wait_for_long(limit: int, sizes: list[int]) -> None:
    waiting = {number: size * 10**7 for number, size in enumerate(sizes)}
    total = sum(waiting.values())
    for number, count in shares(waiting, limit).items():
        assert abs(count - limit * waiting[number] / total) <= len(sizes) + 1


def test_should_take_as_many_as_fit_when_bytes_are_limited() -> None:
    taken = shares_by_bytes({"large": 100, "small": 100}, {"large": 1000.0, "small": 10.0}, 10_110)
    assert taken == {"large": 10, "small": 10}


def test_should_take_one_when_not_even_that_fits() -> None:
    assert shares_by_bytes({"a": 5, "b": 0}, {"a": 1e6}, 10) == {"a": 1}

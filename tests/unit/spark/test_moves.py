"""From one position of a stream to the next, whatever has happened to its topics."""

import pytest

from headrace.spark import offsets
from headrace.spark.errors import DataLossError, LossPolicy, RecreatedTopicError
from headrace.spark.offsets import OffsetRange, SourcePartition, batch_ranges

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

"""What a user may still be working on is never taken for passed; partitions that go take only their own records."""

import pytest

from headrace.client.consumer.cursor import Ask
from headrace.client.consumer.read_ahead import Answered, ReadAhead
from headrace.client.record import Record, TopicPartition
from headrace.client.transport.calls import Directory, Fetched
from headrace.client.transport.discovery import Servers
from headrace.client.transport.retry import Trouble
from headrace.core.errors import StaleTopicError, UnknownPartitionError, UnknownTopicError
from headrace.core.records.header import stamp
from headrace.core.types import LeaderEpoch, Offset
from tests.support.batches import batch_of

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def shared(**positions: int) -> ReadAhead:
    """Of partitions that a group gave."""
    given = {P0: positions.get("p0", 0), P1: positions.get("p1", 0)}
    directory = Directory(Servers(("http://a:1",)))
    return ReadAhead(directory, given, Trouble(), growing=None, timeout_ms=1_000, prefetch_bytes=1 << 20)


def record(partition: TopicPartition, offset: int) -> Record:
    return Record(*partition, offset, 0, None, b"", ())


def stamped(base_offset: int) -> bytes:
    batch = bytearray(batch_of(b"one", b"two"))
    stamp(batch, Offset(base_offset), LeaderEpoch(0))
    return bytes(batch)


def answer(reading: ReadAhead, ask: Ask, *base_offsets: int) -> None:
    """With a batch of two records from each offset on."""
    batches = b"".join(stamped(base) for base in base_offsets)
    reading.take(Answered(ask, Fetched(batches, base_offsets[-1] + 2)), 0)


def test_should_pass_a_batch_when_its_user_comes_back() -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    answer(reading, first, 0, 2)
    assert reading.open()
    batches = reading.read()
    cursor, _ = next(batches)
    reading.handed.given = True
    assert (reading.handed.position(cursor), reading.handed.passed(cursor)) == (2, 0)
    reading.handed.came_back()
    assert reading.handed.passed(cursor) == 2
    next(batches)
    reading.handed.given = True
    assert reading.handed.passed(cursor) == 2
    reading.handed.came_back()
    assert next(batches, None) is None
    assert reading.handed.passed(cursor) == 4


def test_should_pass_each_record_but_the_one_in_hand() -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    answer(reading, first, 0)
    assert reading.open()
    batches = reading.read()
    cursor, _ = next(batches)
    handed = reading.handed
    other = reading.plan.cursors[P1]
    for offset in (0, 1):
        handed.last = record(P0, offset)
        assert (handed.passed(cursor), handed.position(cursor)) == (offset, offset + 1)
        assert (handed.passed(other), handed.position(other)) == (0, 0)


def test_should_not_pass_the_record_in_hand_when_the_rest_of_its_batch_is_dropped() -> None:
    reading = shared()
    handed, cursor = reading.handed, reading.plan.cursors[P0]
    handed.out, handed.last = cursor, record(P0, 7)
    handed.stay(reading.plan.cursors[P1])
    assert (handed.passed(cursor), handed.position(cursor)) == (7, 8)
    handed.stay(cursor)
    assert (cursor.passed, cursor.position) == (7, 8)
    assert (handed.passed(cursor), handed.position(cursor)) == (7, 8)
    handed.came_back()
    assert handed.passed(cursor) == 8


def test_should_pass_nothing_when_a_loop_over_batches_is_broken_off() -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    answer(reading, first, 0, 2)
    assert reading.open()
    batches = reading.read()
    next(batches)
    reading.handed.given = True
    batches.close()
    cursor = first.cursor
    assert (cursor.position, reading.handed.passed(cursor)) == (2, 0)


def test_should_pass_what_compaction_left_out() -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    reading.take(Answered(first, Fetched(b"", 40)), 0)
    assert reading.open()
    assert list(reading.read()) == []
    assert reading.handed.passed(first.cursor) == 40


def test_should_keep_what_was_read_ahead_of_the_others_when_a_partition_goes() -> None:
    reading = shared(p1=5)
    first, second = reading.plan.due(0)
    answer(reading, first, 0)
    answer(reading, second, 5)
    reading.drop(P0)
    assert not first.is_current()
    assert reading.open()
    assert [cursor.partition for cursor, _ in reading.read()] == [P1]
    assert not reading.open()


def test_should_end_an_answer_that_is_being_read_when_its_partition_goes() -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    answer(reading, first, 0, 2)
    assert reading.open()
    batches = reading.read()
    next(batches)
    reading.drop(P0)
    assert next(batches, None) is None
    assert list(reading.plan.cursors) == [P1]


def test_should_begin_anew_when_a_partition_comes_back() -> None:
    reading = shared()
    late, _ = reading.plan.due(0)
    reading.drop(P0)
    reading.plan.add(P0, 30)
    answer(reading, late, 0)
    assert not reading.open()
    assert [ask.offset for ask in reading.plan.due(0)] == [30]


def test_should_wait_for_partitions_while_a_group_has_given_none() -> None:
    reading = shared()
    for partition in (P0, P1):
        reading.drop(partition)
    assert not reading.plan.done
    assert (reading.fetch_bytes > 0, reading.wait_ms > 0) == (True, True)
    reading.plan.end_at({})
    assert reading.plan.done


@pytest.mark.parametrize("error", [UnknownTopicError, UnknownPartitionError, StaleTopicError])
def test_should_leave_a_topic_that_is_gone_to_the_group(error: type[UnknownTopicError]) -> None:
    reading = shared()
    first, _ = reading.plan.due(0)
    gone = Answered(first, error("flights is not there"))
    reading.take(gone, 0)
    first.cursor.asking = True
    with pytest.raises(error, match="gave up on reading flights/0 after 2 tries"):
        reading.take(gone, 5_000)

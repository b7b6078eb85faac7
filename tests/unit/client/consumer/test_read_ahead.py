"""A consumer reads all records, of new partitions too, and notices when it waits in vain.

Records in a user's hands do not count as passed; a partition that goes takes only its own records.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from headrace.client.consumer.cursor import Ask
from headrace.client.consumer.read_ahead import Added, Answered, ReadAhead
from headrace.client.record import Record, TopicPartition
from headrace.client.transport.calls import Directory, Fetched
from headrace.client.transport.discovery import Servers
from headrace.client.transport.retry import Trouble
from headrace.core.errors import (
    BrokerUnreachableError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    StaleTopicError,
    StalledError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreadableBatchError,
)
from headrace.core.limits import CLIENT_STALL_CHECK_MS
from headrace.core.records.header import BatchHeader, stamp
from headrace.core.types import LeaderEpoch, Offset
from tests.support.batches import batch_of, poisoned, sealed

P0, P1, P2 = (TopicPartition("flights", number) for number in range(3))
GONE = BrokerUnreachableError("broker a:1 cannot be reached: Connection refused")


@dataclass
class Metadata:
    partitions: int
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        numbered = [{"partition": number, "leaderEpoch": 0} for number in range(self.partitions)]
        return json.dumps({"name": "flights", "uid": "u1", "maxMessageBytes": 9, "partitions": numbered}).encode()


def reading_of_one() -> tuple[ReadAhead, Directory]:
    """Of a topic that had one partition when the reading began, and has three now."""
    directory = Directory(Servers(("http://a:1",)))
    directory.learn("flights", Metadata(1), 0)
    reading = ReadAhead(directory, {P0: 0}, Trouble(), growing=["flights"], timeout_ms=1_000, prefetch_bytes=1)
    assert reading.added() == []
    directory.learn("flights", Metadata(3), 0)
    return reading, directory


def test_should_tell_each_new_partition_once() -> None:
    reading, directory = reading_of_one()
    assert reading.added() == [P1, P2]
    directory.learn("flights", Metadata(3), 0)
    assert reading.added() == []
    for place in (P1, P2):
        reading.take(Added(place, 7), 0)
    assert [cursor.position for cursor in reading.plan.cursors.values()] == [0, 7, 7]


def test_should_look_a_new_partition_up_again_when_its_beginning_was_not_found() -> None:
    reading, _ = reading_of_one()
    assert reading.added() == [P1, P2]
    with pytest.raises(BrokerUnreachableError):
        reading.take(Added(P2, GONE), 0)
    assert reading.added() == [P2]


@pytest.mark.parametrize("interruption", [GONE, KeyboardInterrupt()])
def test_should_look_new_partitions_up_again_when_whoever_did_was_interrupted(interruption: BaseException) -> None:
    reading, _ = reading_of_one()

    def look_up_one() -> None:
        with reading.adding() as new:
            assert new == [P1, P2]
            reading.take(Added(P1, 7), 0)
            raise interruption

    with pytest.raises(type(interruption)):
        look_up_one()
    with reading.adding() as new:
        assert new == [P2]
        reading.take(Added(P2, 7), 0)
    assert reading.added() == []
    assert list(reading.plan.cursors) == [P0, P1, P2]


def test_should_tell_of_a_fetch_without_an_answer_and_then_stall(caplog: pytest.LogCaptureFixture) -> None:
    reading, _ = reading_of_one()
    limit_ms = reading.watchdog.patience_ms
    (ask,) = reading.plan.due(0)
    for now_ms in range(0, limit_ms + 1, CLIENT_STALL_CHECK_MS):
        reading.check(now_ms)
        assert all(again.offset == ask.offset for again in reading.plan.due(now_ms)), "what was lost is asked again"
    assert not ask.is_current()
    assert caplog.messages[0] == "reading flights/0: no answer for 10 s; still waiting"
    with pytest.raises(StalledError, match="none of its requests has ended"):
        reading.check(limit_ms + CLIENT_STALL_CHECK_MS)
    reading.take(Answered(ask, Fetched(b"", 0)), limit_ms)
    reading.check(limit_ms + 2 * CLIENT_STALL_CHECK_MS)


def test_should_not_take_the_time_in_which_its_user_did_not_read_for_a_brokers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reading, _ = reading_of_one()
    reading.check(0)
    reading.plan.due(0)
    for minute in range(1, 20):
        reading.check(minute * 60_000)
    assert caplog.messages == []


def test_should_never_stall_while_everything_is_paused(caplog: pytest.LogCaptureFixture) -> None:
    reading, _ = reading_of_one()
    reading.plan.due(0)
    (cursor,) = reading.plan.cursors.values()
    cursor.paused = True
    cursor.move(0)
    for now_ms in range(0, 2 * reading.watchdog.patience_ms, CLIENT_STALL_CHECK_MS):
        reading.check(now_ms)
    assert caplog.messages == []


@pytest.mark.parametrize(("choice", "position"), [("earliest", 40), ("latest", 90), ("raise", None)])
def test_should_go_on_where_its_user_wants_when_records_are_gone(
    choice: str, position: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    directory = Directory(Servers(("http://a:1",)))
    reading = ReadAhead(directory, {P0: 7}, Trouble(), growing=None, timeout_ms=1, prefetch_bytes=1)
    reading.on_out_of_range = choice
    (ask,) = reading.plan.due(0)
    gone = OffsetOutOfRangeError("offset 7 is gone", logStartOffset=40, highWatermark=90)
    if position is None:
        with pytest.raises(OffsetOutOfRangeError):
            reading.take(Answered(ask, gone), 0)
        return
    reading.take(Answered(ask, gone), 0)
    assert reading.plan.cursors[P0].position == position
    assert reading.jumps == 1
    assert f"flights/0 goes on at {position}, as on_out_of_range='{choice}' says: offset 7 is gone" in caplog.text
    reading.take(Answered(ask, gone), 0)
    assert reading.jumps == 1, "nobody waits for that any more"
    (again,) = reading.plan.due(0)
    with pytest.raises(OffsetOutOfRangeError):
        reading.take(Answered(again, OffsetOutOfRangeError("offset 40 was cut off")), 0)


def test_should_hand_out_nothing_of_a_partition_that_was_dropped_since_its_answer_was_opened() -> None:
    reading = opened()
    reading.drop(P0)
    assert list(reading.read()) == []
    assert reading.handed.out is None


def test_should_go_on_where_its_user_went_since_an_answer_was_opened() -> None:
    reading = opened()
    (cursor,) = reading.plan.cursors.values()
    cursor.move(1)
    assert list(reading.read()) == []
    assert (cursor.position, [ask.offset for ask in reading.plan.due(0)]) == (1, [1])


def opened() -> ReadAhead:
    """Three records of the first partition, of which nothing is handed out yet."""
    return reading_of(batch_of(b"a", b"b", b"c"), 3)


def stamped(batch: bytes, offset: int) -> bytes:
    header = BatchHeader.unpack(batch)
    return sealed(header._replace(base_offset=Offset(offset)).pack() + batch[64:])


WITH_POISON = (
    stamped(batch_of(b"0"), 0) + stamped(poisoned(batch_of(b"1", b"2", b"3")), 1) + stamped(batch_of(b"4", b"5"), 4)
)


def reading_of(batches: bytes, next_offset: int) -> ReadAhead:
    reading, _ = reading_of_one()
    (ask,) = reading.plan.due(0)
    reading.take(Answered(ask, Fetched(batches, next_offset)), 0)
    assert reading.open()
    return reading


def handed_out(reading: ReadAhead) -> list[int]:
    """To a user who has all of each batch."""
    offsets: list[int] = []
    for _, batch in reading.read():
        reading.handed.given = True
        offsets += batch.offsets.tolist()
    return offsets


def test_should_stop_before_records_that_nobody_can_decode_and_say_how_to_go_on() -> None:
    reading = reading_of(WITH_POISON, 6)
    batches = reading.read()
    assert [batch.offsets.tolist() for _, batch in (next(batches),)] == [[0]]
    reading.handed.given = True
    remedy = (
        r"go on with seek\(TopicPartition\(topic='flights', partition=0\), 4\), or leave .* with on_unreadable='skip'"
    )
    with pytest.raises(
        UnreadableBatchError, match="flights/0: offsets 1 to 3 cannot be decoded: .*; " + remedy
    ) as told:
        next(batches)
    expected = {"topic": "flights", "partition": 0, "baseOffset": 1, "lastOffset": 3, "nextOffset": 4}
    assert told.value.details == expected
    (ask,) = reading.plan.due(0)
    assert ask.offset == 1, "whoever reads on hears of it again"
    ask.cursor.move(4)
    (again,) = reading.plan.due(0)
    reading.take(Answered(again, Fetched(WITH_POISON, 6)), 0)
    assert reading.open()
    assert handed_out(reading) == [4, 5]


def test_should_leave_out_what_nobody_can_decode_where_its_user_wants_that(caplog: pytest.LogCaptureFixture) -> None:
    reading = reading_of(WITH_POISON, 6)
    reading.on_unreadable = "skip"
    assert handed_out(reading) == [0, 4, 5]
    (cursor,) = reading.plan.cursors.values()
    assert (reading.skips, cursor.position, cursor.passed) == (1, 6, 6)
    assert caplog.messages[0].startswith("flights/0: offsets 1 to 3 cannot be decoded: ")
    assert caplog.messages[0].endswith("; left out, as on_unreadable='skip' says")
    last = reading_of(WITH_POISON[:-640], 4)
    last.on_unreadable = "skip"
    assert handed_out(last) == [0]
    assert next(iter(last.plan.cursors.values())).position == 4


def test_should_say_where_it_was_when_bytes_were_damaged_and_leave_nothing_out() -> None:
    damaged = bytearray(WITH_POISON)
    damaged[len(batch_of(b"0")) + 200] ^= 1
    reading = reading_of(bytes(damaged), 6)
    reading.on_unreadable = "skip"
    with pytest.raises(CorruptBatchError, match=r"flights/0, read from offset 1: crc32c is .*; read on to try again"):
        handed_out(reading)
    assert [ask.offset for ask in reading.plan.due(0)] == [1]


def shared(**positions: int) -> ReadAhead:
    """Of partitions that a group gave."""
    given = {P0: positions.get("p0", 0), P1: positions.get("p1", 0)}
    directory = Directory(Servers(("http://a:1",)))
    return ReadAhead(directory, given, Trouble(), growing=None, timeout_ms=1_000, prefetch_bytes=1 << 20)


def record(partition: TopicPartition, offset: int) -> Record:
    return Record(*partition, offset, 0, None, b"", ())


def stamped_pair(base_offset: int) -> bytes:
    batch = bytearray(batch_of(b"one", b"two"))
    stamp(batch, Offset(base_offset), LeaderEpoch(0))
    return bytes(batch)


def answer(reading: ReadAhead, ask: Ask, *base_offsets: int) -> None:
    """With a batch of two records from each offset on."""
    batches = b"".join(stamped_pair(base) for base in base_offsets)
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

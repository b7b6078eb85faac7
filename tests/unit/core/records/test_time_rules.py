"""The times of a batch as it arrived: read without decoding the rest, compared with the header, held against bounds."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from headrace.core.errors import CorruptBatchError, InvalidTimestampError
from headrace.core.records.arrow_message import TIMES_COUNTED_PLAINLY_MAX, read_message, time_buffer, times_in
from headrace.core.records.columns import encode_batch, record_columns
from headrace.core.records.header import BatchHeader, Compression, ProducerNumbers
from headrace.core.records.raw import RawBatch, batch_crc, renumbered, split_batches, stored_times, unpack_times
from headrace.core.records.time_rules import TIMESTAMP_MS_MAX, Reason, Strange, TimeRules
from headrace.core.resources.topic import TopicSpec

NOW_MS = 1_790_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
MANY = TIMES_COUNTED_PLAINLY_MAX + 1


def encoded(times_ms: Sequence[int], compression: Compression = Compression.NONE) -> bytes:
    records = record_columns([b"v"] * len(times_ms), timestamps_ms=[*times_ms])
    return b"".join(encode_batch(records, compression=compression))


def split(*batches: bytes) -> list[RawBatch]:
    taken = split_batches([b"".join(batches)], batch_bytes_max=1 << 23)
    for batch in taken:
        unpack_times(batch)
    return taken


def changed(batch: bytes, change: Callable[[BatchHeader], BatchHeader]) -> bytes:
    """With another header, whose checksums are right."""
    body = batch[64:]
    header = change(BatchHeader.unpack(batch))
    return header._replace(crc32c=batch_crc(header.pack(), [body])).pack() + body


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("count", [1, 3, MANY])
def test_should_know_the_oldest_and_the_newest_time_when_a_batch_is_split(compression: Compression, count: int) -> None:
    times_ms = [NOW_MS + 7 * ((index * 5) % count) for index in range(count)]
    whole = encoded(times_ms, compression)
    for chunks in ([whole], [whole[:100], whole[100:401], whole[401:]], [bytes([byte]) for byte in whole]):
        (batch,) = split_batches(chunks, batch_bytes_max=1 << 23)
        assert (batch.times is None) == (compression is not Compression.NONE), "what has to be unpacked is not yet"
        unpack_times(batch)
        assert batch.times is not None
        assert [*batch.times.each] == times_ms
        assert (batch.times.oldest_ms, batch.times.newest_ms) == (min(times_ms), max(times_ms))
    assert stored_times(memoryview(whole)) == batch.times


@pytest.mark.parametrize("lie_ms", [-1, (1 << 63) - 1, NOW_MS + 1, NOW_MS - 1])
@pytest.mark.parametrize("field", ["max_timestamp_ms", "base_timestamp_ms"])
def test_should_refuse_a_header_that_says_other_times_than_its_records_have(field: str, lie_ms: int) -> None:
    lying = changed(encoded([NOW_MS, NOW_MS]), lambda header: BatchHeader(**{**header._asdict(), field: lie_ms}))
    with pytest.raises(CorruptBatchError, match=rf"batch 0: .*{field} .*{lie_ms}.*the greatest {NOW_MS}"):
        split(lying)


def test_should_take_a_lying_header_when_the_batch_is_committed_already() -> None:
    lying = changed(encoded([NOW_MS]), lambda header: header._replace(max_timestamp_ms=-1))
    (batch,) = split_batches([lying], batch_bytes_max=1 << 23, are_committed=True)
    assert batch.times is None
    assert renumbered(memoryview(lying), ProducerNumbers(1, 0, 0)).times is None


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_should_refuse_a_codec_that_the_body_does_not_have(compression: Compression) -> None:
    lying = changed(encoded([NOW_MS]), lambda header: header._replace(attributes=compression))
    with pytest.raises(CorruptBatchError, match=f"compression is NONE, attributes say {compression.name}"):
        split(lying)


def _patched(batch: bytes, at: int, content: bytes) -> bytes:
    return changed(batch[:at] + content + batch[at + len(content) :], lambda header: header)


def _time_entry(batch: bytes) -> tuple[int, int]:
    """Where the entry of the times stands in the vector of buffers, and where the times do."""
    view = memoryview(batch)
    at, size = time_buffer(read_message(view, len(batch)), BatchHeader.unpack(batch).compression)
    body_at = read_message(view, len(batch)).body_at
    entry = (at - body_at).to_bytes(8, "little") + size.to_bytes(8, "little")
    return batch.index(entry), at


@pytest.mark.parametrize(
    ("at_bytes", "size_bytes", "message"),
    [
        (-8, 8, "outside of a body"),
        (0, -8, "outside of a body"),
        (1 << 40, 8, "outside of a body"),
        (0, 0, "the times of 2 records take 16 bytes, not 0"),
        (0, 8, "the times of 2 records take 16 bytes, not 8"),
    ],
)
def test_should_refuse_times_that_are_not_there(at_bytes: int, size_bytes: int, message: str) -> None:
    batch = encoded([NOW_MS, NOW_MS])
    entry_at, _ = _time_entry(batch)
    content = at_bytes.to_bytes(8, "little", signed=True) + size_bytes.to_bytes(8, "little", signed=True)
    with pytest.raises(CorruptBatchError, match=message):
        split(_patched(batch, entry_at, content))


def test_should_refuse_a_body_without_a_column_of_times() -> None:
    batch = encoded([NOW_MS, NOW_MS])
    entry_at, _ = _time_entry(batch)
    length_at = entry_at - 7 * 16 - 4
    assert batch[length_at] == 17
    with pytest.raises(CorruptBatchError, match="the body has no column of times"):
        split(_patched(batch, length_at, b"\x07\0\0\0"))


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        (8 * MANY - 8, f"the times take {8 * MANY} bytes, and claim {8 * MANY - 8}"),
        (1 << 40, "and claim 1099511627776 once"),
        (-2, "and claim -2 once"),
        (8 * MANY + 8, "the times cannot be decompressed|not what"),
    ],
)
def test_should_refuse_compressed_times_that_claim_another_length(claimed: int, message: str) -> None:
    batch = encoded([NOW_MS] * MANY, Compression.ZSTD)
    _, at = _time_entry(batch)
    with pytest.raises(CorruptBatchError, match=message):
        split(_patched(batch, at, claimed.to_bytes(8, "little", signed=True)))


def test_should_refuse_compressed_times_that_are_none() -> None:
    batch = encoded([NOW_MS] * MANY, Compression.LZ4)
    _, at = _time_entry(batch)
    with pytest.raises(CorruptBatchError, match="the times cannot be decompressed"):
        split(_patched(batch, at + 8, b"\xff" * 8))


def test_should_refuse_compressed_times_that_are_too_short_to_say_their_length() -> None:
    batch = encoded([NOW_MS] * MANY, Compression.ZSTD)
    entry_at, _ = _time_entry(batch)
    with pytest.raises(CorruptBatchError, match="the compressed times take 4 bytes"):
        split(_patched(batch, entry_at + 8, (4).to_bytes(8, "little")))


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_should_take_any_time_of_ten_millennia_when_the_topic_says_nothing() -> None:
    rules = TimeRules.of_topic(TopicSpec.parse({"partitions": 1}))
    assert rules == TimeRules(7 * DAY_MS)
    assert not rules.has_bounds
    rules.check(split(encoded([0, NOW_MS, TIMESTAMP_MS_MAX])), NOW_MS, "default/flights/0")


def test_should_have_no_rules_when_the_leader_gives_the_times() -> None:
    assert TimeRules.of_topic(TopicSpec.parse({"partitions": 1, "timestampType": "LogAppendTime"})) is None


@pytest.mark.parametrize(
    ("time_ms", "limit"),
    [(-1, 0), (-(1 << 63), 0), ((1 << 63) - 1, TIMESTAMP_MS_MAX), (NOW_MS * 1000, TIMESTAMP_MS_MAX)],
)
@pytest.mark.parametrize("rules", [TimeRules(), TimeRules(None, DAY_MS, HOUR_MS)])
def test_should_refuse_what_is_no_time_in_milliseconds(rules: TimeRules, time_ms: int, limit: int) -> None:
    with pytest.raises(
        InvalidTimestampError, match="give milliseconds since 1970-01-01 UTC, or leave it out"
    ) as caught:
        rules.check(split(encoded([NOW_MS]), encoded([NOW_MS, time_ms])), NOW_MS, "default/flights/0")
    assert f"record 2 for default/flights/0: timestamp {time_ms} " in caught.value.message
    assert caught.value.details == {"batch": 1, "record": 2, "timestamp": time_ms, "limit": limit}


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    ("time_ms", "said"),
    [
        (
            NOW_MS - DAY_MS - 1,
            r"is before 2026-09-20T.*timestamps\.beforeMax is 1d; .*raise spec\.timestamps\.beforeMax",
        ),
        (NOW_MS + HOUR_MS + 1, r"is after 2026-09-21T.*timestamps\.afterMax is 1h; .*raise spec\.timestamps\.afterMax"),
    ],
)
def test_should_refuse_what_is_out_of_the_topics_bounds(time_ms: int, said: str, count: int) -> None:
    rules = TimeRules.of_topic(TopicSpec.parse({"partitions": 1, "timestamps": {"beforeMax": "1d", "afterMax": "1h"}}))
    assert rules is not None
    assert rules.has_bounds
    rules.check(split(encoded([NOW_MS - DAY_MS, NOW_MS + HOUR_MS])), NOW_MS, "default/flights/0")
    with pytest.raises(InvalidTimestampError, match=said) as caught:
        rules.check(split(encoded([NOW_MS] * count + [time_ms])), NOW_MS, "default/flights/0")
    assert caught.value.details["record"] == count
    assert str(caught.value.details["field"]).startswith("spec.timestamps.")


def test_should_not_ask_about_batches_that_are_there_already_or_that_nobody_has_looked_at() -> None:
    rules = TimeRules(None, DAY_MS)
    old, new, known = split(encoded([1]), encoded([NOW_MS]), encoded([2, 3]))
    rules.check([old, new], NOW_MS, "default/flights/0", {0})
    rules.check([replace(known, times=None), new], NOW_MS, "default/flights/0")
    with pytest.raises(InvalidTimestampError, match="record 2 for"):
        rules.check([replace(known, times=None), old], NOW_MS, "default/flights/0")


# -- warnings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, MANY])
def test_should_tell_of_what_is_older_than_retention_and_of_what_is_far_ahead(more: int) -> None:
    rules = TimeRules(DAY_MS)
    fine = [NOW_MS - DAY_MS, NOW_MS + HOUR_MS] + [NOW_MS] * more
    assert rules.strange([batch.times for batch in split(encoded(fine)) if batch.times], NOW_MS) == []
    batches = split(encoded([*fine, NOW_MS - DAY_MS - 1, 5]), encoded([*fine, NOW_MS + HOUR_MS + 1]))
    found = rules.strange([batch.times for batch in batches if batch.times], NOW_MS)
    assert found == [Strange(Reason.OVERDUE, 2), Strange(Reason.AHEAD, 1)]
    told = [each.warning(rules.retention_ms) for each in found]
    assert told[0].startswith("2 records are older than the topic's retention.time, which is 1d: ")
    assert told[1].startswith("1 record is more than 1h ahead of the clock: ")


@pytest.mark.parametrize("spec", [{"cleanupPolicy": "Compact"}, {"retention": {"time": "unlimited"}}])
def test_should_not_call_records_old_when_none_is_deleted_for_its_age(spec: dict[str, object]) -> None:
    rules = TimeRules.of_topic(TopicSpec.parse({"partitions": 1, **spec}))
    assert rules is not None
    assert rules.strange([times_in(memoryview(b"\0" * 16))], NOW_MS) == []


def test_should_count_what_lies_outside() -> None:
    for count in (2, MANY):
        (batch,) = split(encoded(range(count)))
        assert batch.times is not None
        assert batch.times.count_outside(0, count) == 0
        assert batch.times.count_outside(1, count) == 1
        assert batch.times.first_outside(0, count) is None
        assert batch.times.first_outside(0, count - 2) == count - 1


def test_should_refuse_metadata_that_ends_within_the_entry_of_the_times() -> None:
    batch = encoded([NOW_MS, NOW_MS])
    message = read_message(memoryview(batch), len(batch))
    table = message.record_batch
    cut = message._replace(record_batch=table._replace(metadata=table.metadata[: table.field(2) + 4]))
    with pytest.raises(CorruptBatchError, match="points outside of itself"):
        time_buffer(cut, Compression.NONE)


def test_should_read_times_that_are_stored_as_they_are_in_a_compressed_batch() -> None:
    batch = encoded([NOW_MS], Compression.LZ4)
    entry_at, at = _time_entry(batch)
    plain = (-1).to_bytes(8, "little", signed=True) + NOW_MS.to_bytes(8, "little")
    assert int.from_bytes(batch[entry_at + 8 : entry_at + 16], "little") >= 16
    (taken,) = split(_patched(batch, at, plain))
    assert taken.times is not None
    assert [*taken.times.each] == [NOW_MS]

"""Names of segments, and when a log goes on in a new one.

Entries of the sparse indexes: which batches have one, how they are found, how damage shows.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import INDEX_INTERVAL_BYTES, SEGMENT_BYTES_MAX, SEGMENT_OFFSETS_MAX, UNSYNCED_SEGMENTS_MAX
from headrace.core.log.segments import (
    BEFORE_ALL_TIMES_MS,
    SEGMENT_BYTES_MIN,
    DamagedIndexError,
    Growth,
    IndexCursor,
    LogConfig,
    OffsetEntry,
    TimeEntry,
    entries_while,
    parse_log_name,
    roll_reason,
    segment_name,
)
from headrace.core.records.header import MAGIC, BatchHeader
from headrace.core.resources.topic import Durability, TopicSpec
from headrace.core.types import LeaderEpoch, Offset

CONFIG = LogConfig(segment_bytes=1000, segment_ms=500, durability=Durability.FSYNC)
GROWTH = Growth(
    segment_bytes=900,
    segment_offsets=9,
    created_ms=100,
    append_bytes=100,
    append_offsets=1,
    now_ms=599,
    unsynced_segments=UNSYNCED_SEGMENTS_MAX - 1,
)


def test_should_name_a_segment_after_its_first_offset() -> None:
    assert segment_name(Offset(170)) == "00000000000000000170"
    assert parse_log_name("00000000000000000170.log") == 170


@given(st.integers(0, (1 << 63) - 1))
def test_should_find_the_base_offset_again_when_a_log_file_has_its_name(offset: int) -> None:
    name = segment_name(Offset(offset)) + ".log"
    assert parse_log_name(name) == offset
    assert len(name) == 24


@pytest.mark.parametrize("name", ["1.log", "0" * 20 + ".index", "0" * 20, "x" * 20 + ".log", "٠" * 20 + ".log", ""])
def test_should_leave_a_file_alone_when_its_name_is_not_a_log_s(name: str) -> None:
    assert parse_log_name(name) is None


def test_should_take_the_log_s_part_of_a_topic_s_spec() -> None:
    spec = TopicSpec.parse({"partitions": 1, "segment": {"bytes": "1Mi", "time": "1h"}, "durability": "Replicated"})
    assert LogConfig.of_topic(spec) == LogConfig(1 << 20, 3_600_000, Durability.REPLICATED)


@pytest.mark.parametrize(
    ("asked", "taken"), [(1, SEGMENT_BYTES_MIN), (SEGMENT_BYTES_MIN, SEGMENT_BYTES_MIN), (1 << 20, 1 << 20)]
)
def test_should_take_the_least_size_for_a_segment_of_which_each_request_would_be_one(asked: int, taken: int) -> None:
    spec = TopicSpec.parse({"partitions": 1, "segment": {"bytes": str(asked)}})
    assert LogConfig.of_topic(spec).segment_bytes == taken


def test_should_stay_in_the_segment_when_the_append_just_fits() -> None:
    assert roll_reason(GROWTH, CONFIG) == ""


@pytest.mark.parametrize(
    ("growth", "reason"),
    [
        (GROWTH._replace(append_bytes=101), "1001 bytes would pass segment.bytes 1000"),
        (GROWTH._replace(now_ms=600), "it is 500 ms old, segment.time is 500 ms"),
        (GROWTH._replace(segment_offsets=SEGMENT_OFFSETS_MAX), f"cannot name more than {SEGMENT_OFFSETS_MAX} offsets"),
    ],
)
def test_should_roll_when_a_limit_is_passed(growth: Growth, reason: str) -> None:
    assert reason in roll_reason(growth, CONFIG)


def test_should_roll_at_the_index_s_own_limit_when_the_topic_allows_more() -> None:
    config = replace(CONFIG, segment_bytes=SEGMENT_BYTES_MAX * 2)
    assert "positions beyond" in roll_reason(GROWTH._replace(segment_bytes=SEGMENT_BYTES_MAX), config)


def test_should_roll_only_where_it_must_when_many_closed_segments_wait_for_their_sync() -> None:
    behind = GROWTH._replace(append_bytes=101, now_ms=600, unsynced_segments=UNSYNCED_SEGMENTS_MAX)
    assert roll_reason(behind, CONFIG) == ""
    assert roll_reason(behind._replace(segment_bytes=SEGMENT_BYTES_MAX), CONFIG) != ""
    assert roll_reason(behind._replace(segment_offsets=SEGMENT_OFFSETS_MAX), CONFIG) != ""


def test_should_never_roll_an_empty_segment() -> None:
    assert roll_reason(GROWTH._replace(segment_bytes=0, append_bytes=5000, now_ms=10**9), CONFIG) == ""


BASE = Offset(1 << 40)
OFFSET_ENTRIES = st.builds(
    lambda delta, position: OffsetEntry(Offset(BASE + delta), position),
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1),
)
TIME_ENTRIES = st.builds(
    lambda time, delta: TimeEntry(time, Offset(BASE + delta)),
    st.integers(BEFORE_ALL_TIMES_MS, (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
)


def header(base_offset: int, batch_bytes: int, max_timestamp_ms: int) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(base_offset),
        leader_epoch=LeaderEpoch(1),
        batch_bytes=batch_bytes,
        magic=MAGIC,
        crc32c=0,
        attributes=0,
        producer_epoch=-1,
        last_offset_delta=0,
        record_count=1,
        base_sequence=-1,
        base_timestamp_ms=0,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=-1,
    )


def test_should_read_entries_at_their_bounds() -> None:
    by_offset, by_time = OffsetEntry(Offset(BASE + 7), (1 << 32) - 1), TimeEntry(BEFORE_ALL_TIMES_MS, BASE)
    assert OffsetEntry.unpack(by_offset.pack(BASE), BASE) == by_offset
    assert TimeEntry.unpack(by_time.pack(BASE), BASE) == by_time
    with pytest.raises(DamagedIndexError):
        TimeEntry.unpack(bytes(len(by_time.pack(BASE))), BASE)


@pytest.mark.parametrize("guess", [0, 0.3, 0.5, 1])
def test_should_count_entries_wherever_it_begins(guess: float) -> None:
    for count in range(12):
        found = [entries_while(count, lambda at: at, lambda entry: entry < bound, guess) for bound in range(13)]  # noqa: B023 (called at once)
        assert found == [min(count, bound) for bound in range(13)]


@given(OFFSET_ENTRIES, TIME_ENTRIES)
def test_should_read_an_entry_that_was_written(by_offset: OffsetEntry, by_time: TimeEntry) -> None:
    assert OffsetEntry.unpack(by_offset.pack(BASE), BASE) == by_offset
    assert TimeEntry.unpack(memoryview(by_time.pack(BASE)), BASE) == by_time


@given(OFFSET_ENTRIES, st.data())
def test_should_not_believe_an_entry_when_a_bit_is_flipped(entry: OffsetEntry, data: st.DataObject) -> None:
    content = bytearray(entry.pack(BASE))
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedIndexError):
        OffsetEntry.unpack(bytes(content), BASE)


@pytest.mark.parametrize("content", [b"\0" * 12, b"\0" * 11, b""])
def test_should_not_believe_zeros_or_half_an_entry(content: bytes) -> None:
    with pytest.raises(DamagedIndexError):
        OffsetEntry.unpack(content, BASE)


@given(st.lists(st.integers(0, 50), max_size=70).map(sorted), st.integers(-1, 51), st.floats(0, 1))
def test_should_count_the_entries_for_which_it_holds(entries: list[int], bound: int, guess: float) -> None:
    looked_at: list[int] = []

    def read(i: int) -> int:
        looked_at.append(i)
        return entries[i]

    assert entries_while(len(entries), read, lambda entry: entry <= bound, guess) == sum(e <= bound for e in entries)
    assert len(looked_at) <= 2 + 2 * len(entries).bit_length()


@pytest.mark.parametrize(("bound", "reads"), [(5_000, 1), (499, 4), (510, 10)])
def test_should_read_few_entries_when_the_guess_is_good(bound: int, reads: int) -> None:
    looked_at: list[int] = []

    def read(i: int) -> int:
        looked_at.append(i)
        return i

    entries_while(1_000, read, lambda entry: entry <= bound, 0.5)
    assert len(looked_at) <= reads


def test_should_index_a_batch_when_it_starts_an_interval_after_the_last_entry() -> None:
    cursor = IndexCursor()
    assert cursor.passed(header(0, 64, 70), 0) is None
    assert cursor.passed(header(1, INDEX_INTERVAL_BYTES, 50), 64) is None
    due = cursor.passed(header(2, 64, 90), INDEX_INTERVAL_BYTES + 64)
    assert due == (OffsetEntry(Offset(2), INDEX_INTERVAL_BYTES + 64), TimeEntry(70, Offset(2)))
    assert cursor.passed(header(3, 64, 0), INDEX_INTERVAL_BYTES + 128) is None
    assert cursor.max_timestamp_ms == 90
    assert cursor.is_due(2 * INDEX_INTERVAL_BYTES + 64)


def test_should_go_its_own_way_when_a_cursor_is_copied() -> None:
    cursor = IndexCursor()
    copied = cursor.copy()
    cursor.passed(header(7, 64, 5), INDEX_INTERVAL_BYTES)
    assert copied == IndexCursor()
    assert cursor == IndexCursor(INDEX_INTERVAL_BYTES, 5)

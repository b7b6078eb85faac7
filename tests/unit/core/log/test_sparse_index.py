"""Entries of the sparse indexes: which batches have one, how they are found, how damage shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.limits import INDEX_INTERVAL_BYTES
from headrace.core.log.segments import (
    BEFORE_ALL_TIMES_MS,
    DamagedIndexError,
    IndexCursor,
    OffsetEntry,
    TimeEntry,
    entries_while,
)
from headrace.core.records.header import MAGIC, BatchHeader
from headrace.core.types import LeaderEpoch, Offset

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

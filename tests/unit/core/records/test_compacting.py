"""What compaction leaves of batches: the last record of each key, at its offset, and no hole between batches."""

from collections.abc import Container, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatchError
from headrace.core.records.columns import columns_of, decode_batch, encode_batch
from headrace.core.records.compacting import (
    COMPACTED_BATCH_BYTES,
    BatchCompactor,
    Keep,
    LatestRecords,
    ProducersLast,
    Tally,
)
from headrace.core.records.header import CONTROL_BIT, BatchHeader, Compression, ProducerNumbers
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset, RecordContent
from tests.support.batches import TIMESTAMP_MS, packed, poisoned

NOTHING_ELSE = Keep(Offset(0), Offset(0), ProducersLast(Offset(0), ()))
FAR = Offset(1 << 40)


class Log:
    """Batches one after the other, as a leader stamps them."""

    def __init__(self) -> None:
        self.content: list[bytes] = []
        self.end = Offset(0)

    def add(
        self,
        *records: RecordContent,
        epoch: int = 1,
        compression: Compression = Compression.NONE,
        append_time_ms: int | None = None,
        producer: int = -1,
    ) -> "Log":
        numbers = ProducerNumbers(producer, min(producer, 0), min(producer, 0))
        buffers = encode_batch(columns_of(records), compression=compression, numbers=numbers)
        (batch,) = split_batches(buffers, batch_bytes_max=1 << 30)
        if append_time_ms is not None:
            batch.take_append_time(append_time_ms)
        return self.put(batch, epoch)

    def put(self, batch: RawBatch, epoch: int = 1) -> "Log":
        batch.stamp(self.end, LeaderEpoch(epoch))
        self.end = batch.header.next_offset
        self.content.append(b"".join(batch.buffers))
        return self

    @property
    def headers(self) -> list[BatchHeader]:
        return [BatchHeader.unpack(batch) for batch in self.content]


def record(key: str | None, value: str | None, time_ms: int = TIMESTAMP_MS) -> RecordContent:
    return RecordContent(None if key is None else key.encode(), None if value is None else value.encode(), time_ms)


def latest_of(batches: Sequence[bytes], keys_max: int = 1 << 20) -> LatestRecords:
    latest = LatestRecords(Offset(0), keys_max)
    for batch in batches:
        header = BatchHeader.unpack(batch)
        if header.is_empty:
            latest.skip(header.next_offset)
        elif not latest.add(decode_batch(batch)):
            break
    return latest


def compacted(
    batches: Sequence[bytes], keep: Keep = NOTHING_ELSE, keys_max: int = 1 << 20
) -> tuple[list[bytes], Tally]:
    compactor = BatchCompactor(latest_of(batches, keys_max), keep)
    found = [made for batch in batches for made in compactor.add(BatchHeader.unpack(batch), memoryview(batch))]
    return [b"".join(made) for made in (*found, *compactor.flush())], compactor.tally


def producers_of(
    headers: Sequence[BatchHeader], dirty_from: int = 0, remembered: Container[int] = range(10)
) -> ProducersLast:
    last = ProducersLast(Offset(dirty_from), remembered)
    for header in headers:
        last.add(header)
    return last


def rows_of(batches: Sequence[bytes]) -> list[tuple[int, RecordContent]]:
    return [row for batch in batches if not BatchHeader.unpack(batch).is_empty for row in decode_batch(batch).rows()]


RECORD = st.builds(
    record,
    st.sampled_from([None, "a", "b", "c", "k" * 64, "k" * 65, "k" * 66]),
    st.none() | st.sampled_from(["", "v", "w" * 50]),
    st.integers(0, 1 << 40),
)
BATCH = st.tuples(
    st.lists(RECORD, min_size=1, max_size=5),
    st.integers(0, 1),
    st.sampled_from(Compression),
    st.none() | st.integers(5, 6),
    st.sampled_from([-1, -1, 7, 8]),
)


@given(drawn=st.lists(BATCH, max_size=12), start=st.integers(0, 10), tombstones_from=st.integers(0, 40))
def test_should_leave_the_last_record_of_each_key_where_it_was(
    drawn: list[tuple[list[RecordContent], int, Compression, int | None, int]], start: int, tombstones_from: int
) -> None:
    log, epoch = Log(), 1
    for records, rise, compression, append_time_ms, producer in drawn:
        epoch += rise
        log.add(*records, epoch=epoch, compression=compression, append_time_ms=append_time_ms, producer=producer)
    keep = Keep(Offset(start), Offset(tombstones_from), producers_of(log.headers))

    found, tally = compacted(log.content, keep)

    before = rows_of(log.content)
    last = {row.key: offset for offset, row in before}
    expected = [
        (offset, row)
        for offset, row in before
        if row.key is not None
        and last[row.key] == offset
        and offset >= start
        and (row.value is not None or offset >= tombstones_from)
    ]
    assert rows_of(found) == expected
    assert (tally.records_before, tally.records_after) == (len(before), len(expected))
    assert [int(o) for part in tally.tombstones for o in part] == [o for o, row in expected if row.value is None]
    assert tally.without_key == sum(row.key is None for _, row in before)
    headers = [BatchHeader.unpack(batch) for batch in found]
    assert [h.base_offset for h in headers] == [0, *(h.next_offset for h in headers[:-1])][: len(headers)]
    assert (headers[-1].next_offset if headers else 0) == log.end
    assert epochs_of(headers) == epochs_of(log.headers)
    for header in headers:
        times = [row.timestamp_ms for offset, row in expected if header.base_offset <= offset < header.next_offset]
        assert header.max_timestamp_ms == max(times, default=-1)
        assert header.base_timestamp_ms == (times[0] if times else -1) or header.has_append_time
    assert compacted(found, keep)[0] == found, "a second pass changes nothing"


def test_should_keep_young_tombstones_and_no_record_without_a_key() -> None:
    log = Log().add(record("a", "1"), record("b", None), record(None, "x")).add(record("a", None), record("c", "1"))
    found, tally = compacted(log.content, NOTHING_ELSE._replace(tombstones_from=Offset(2)))
    assert rows_of(found) == [(3, record("a", None)), (4, record("c", "1"))]
    assert (tally.records_before, tally.records_after, tally.without_key) == (5, 2, 1)
    assert [int(offset) for part in tally.tombstones for offset in part] == [3]


def test_should_tell_long_keys_apart_by_all_of_their_bytes() -> None:
    log = Log().add(record("k" * 65, "1"), record("k" * 66, "1"), record("a", "1")).add(record("k" * 65, "2"))
    found, _ = compacted(log.content)
    assert [(offset, row.value) for offset, row in rows_of(found)] == [(1, b"1"), (2, b"1"), (3, b"2")]


def test_should_pass_over_batches_without_records() -> None:
    once, _ = compacted(Log().add(record("a", "1")).add(record("a", "2"), epoch=2).content)
    assert [BatchHeader.unpack(batch).is_empty for batch in once] == [True, False]
    assert compacted(once)[0] == once


def epochs_of(headers: Sequence[BatchHeader]) -> list[tuple[int, int]]:
    """Where each leader epoch begins."""
    starts = dict[int, int]()
    for header in headers:
        starts.setdefault(header.leader_epoch, header.base_offset)
    return list(starts.items())


def test_should_join_small_batches_and_keep_what_is_alike_apart_from_what_is_not() -> None:
    log = Log().add(record("a", "1")).add(record("b", "1")).add(record("c", "1"), epoch=2)
    log.add(record("d", "1"), epoch=2, compression=Compression.LZ4)
    found, _ = compacted(log.content)
    assert [(h.base_offset, h.record_count, h.is_sparse) for h in map(BatchHeader.unpack, found)] == [
        (0, 2, False),
        (2, 1, False),
        (3, 1, False),
    ]
    assert found[1:] == log.content[2:], "what stands alone has the bytes it had"


def test_should_not_make_batches_larger_than_they_should_be() -> None:
    log = Log()
    for key in "abcd":
        log.add(record(key, "v" * (COMPACTED_BATCH_BYTES // 2 - 100)))
    found, _ = compacted(log.content)
    assert [BatchHeader.unpack(batch).record_count for batch in found] == [2, 2]


def test_should_let_batches_without_records_join_whatever_comes_before_them() -> None:
    large = record("b", "v" * COMPACTED_BATCH_BYTES)
    log = Log().add(record("a", "1")).add(large).add(record("a", "2"), record("a", "3")).add(record("a", "4"))
    found, _ = compacted(log.content)
    assert [(h.base_offset, h.last_offset_delta, h.record_count) for h in map(BatchHeader.unpack, found)] == [
        (0, 3, 1),
        (4, 0, 1),
    ]


def test_should_know_the_last_batches_of_each_producer_after_their_records_are_gone() -> None:
    log = Log()
    for _ in range(7):
        log.add(record("a", "1"), producer=3)
    log.add(record("a", "2"), producer=4).add(record("a", "3"))
    found, _ = compacted(log.content, Keep(Offset(0), Offset(0), producers_of(log.headers)))
    headers = [BatchHeader.unpack(batch) for batch in found]
    assert [(h.base_offset, h.producer_id, h.record_count) for h in headers] == [
        (0, -1, 0),
        *((offset, 3, 0) for offset in range(2, 7)),
        (7, 4, 0),
        (8, -1, 1),
    ]
    assert headers[0].last_offset_delta == 1

    again, _ = compacted(found, Keep(Offset(0), Offset(0), producers_of([], dirty_from=9)))
    assert again == found, "what was compacted before holds the last ones only"
    more = Log()
    for _ in range(5):
        more.add(record("b", "1"), producer=3)
    overtaken, _ = compacted(found, Keep(Offset(0), Offset(0), producers_of(more.headers, dirty_from=9)))
    assert [BatchHeader.unpack(batch).producer_id for batch in overtaken] == [-1, 4, -1]
    forgotten, _ = compacted(found, Keep(Offset(0), Offset(0), producers_of([], dirty_from=9, remembered=(3,))))
    assert [BatchHeader.unpack(batch).producer_id for batch in forgotten] == [-1, *[3] * 5, -1]


def test_should_pass_control_batches_on_as_they_are() -> None:
    log = Log().add(record("a", "1"))
    control = BatchHeader.unpack(log.content[0])._replace(base_offset=Offset(1), attributes=CONTROL_BIT)
    batches = [log.content[0], packed(control, log.content[0][64:])]
    compactor = BatchCompactor(LatestRecords(FAR, 10), NOTHING_ELSE)
    out = [compactor.add(BatchHeader.unpack(batch), memoryview(batch)) for batch in batches]
    assert [[bytes(*made) for made in each] for each in out] == [[], batches]
    assert compactor.flush() == []


def test_should_take_only_as_many_keys_as_it_may_and_leave_the_rest_as_it_is() -> None:
    log = Log().add(record("a", "1"), record("b", "1"), record("c", "1")).add(record("a", "2"))
    log.add(record("d", "1"), record("e", "1")).add(record(None, "x"), record("a", "3"))
    latest = latest_of(log.content, keys_max=4)
    assert latest.end == 4, "the first batch fits whatever it holds, the third one does not"
    found, _ = compacted(log.content, keys_max=4)
    assert [(offset, row.value) for offset, row in rows_of(found)] == [
        (1, b"1"),
        (2, b"1"),
        (3, b"2"),
        (4, b"1"),
        (5, b"1"),
        (6, b"x"),
        (7, b"3"),
    ]


def test_should_refuse_a_batch_that_it_cannot_read() -> None:
    batch = bytearray(Log().add(record("a", "1")).content[0])
    batch[-1] ^= 1
    compactor = BatchCompactor(LatestRecords(FAR, 10), NOTHING_ELSE)
    with pytest.raises(CorruptBatchError):
        compactor.add(BatchHeader.unpack(batch), memoryview(batch))


def test_should_pass_on_what_nobody_can_decode_and_join_nothing_over_it() -> None:
    log = Log().add(record("a", "1"), record("b", "1")).add(record("a", "2"))
    log.content.append(poisoned(log.add(record("a", "?")).content.pop()))
    log.add(record("b", "2"))
    compactor = BatchCompactor(latest_of([*log.content[:2], log.content[3]]), NOTHING_ELSE)
    made = [each for batch in log.content for each in compactor.add(BatchHeader.unpack(batch), memoryview(batch))]
    left = [b"".join(each) for each in (*made, *compactor.flush())]
    assert compactor.tally.unreadable == [3]
    assert left[1] == log.content[2]
    assert [(offset, row.key) for offset, row in rows_of([left[0], left[2]])] == [(2, b"a"), (4, b"b")]
    assert [(header.base_offset, header.next_offset) for header in map(BatchHeader.unpack, left)] == [
        (0, 3),
        (3, 4),
        (4, 5),
    ]

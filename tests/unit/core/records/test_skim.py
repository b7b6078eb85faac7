"""Counting batches: as whole headers would be counted, and not beyond what the buffer holds."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import CorruptBatchError
from headrace.core.records.header import MAGIC, NO_PRODUCER, BatchHeader, BatchRun, skim_batches
from headrace.core.types import LeaderEpoch, Offset


def _run(counts: Sequence[int]) -> tuple[bytes, list[BatchHeader]]:
    """Headers alone, each with a body of zeros."""
    headers, offset = list[BatchHeader](), 0
    for count in counts:
        headers.append(
            BatchHeader(
                base_offset=Offset(offset),
                leader_epoch=LeaderEpoch(1),
                batch_bytes=64 * (2 + count % 3),
                magic=MAGIC,
                crc32c=0,
                attributes=0,
                producer_epoch=NO_PRODUCER,
                last_offset_delta=count - 1,
                record_count=count,
                base_sequence=NO_PRODUCER,
                base_timestamp_ms=0,
                max_timestamp_ms=0,
                producer_id=NO_PRODUCER,
            )
        )
        offset += count
    return b"".join(each.pack().ljust(each.batch_bytes, b"\0") for each in headers), headers


@pytest.mark.parametrize(("records_max", "batches", "records"), [(0, 1, 2), (2, 1, 2), (3, 2, 5), (100, 3, 6)])
def test_should_take_one_batch_at_least_and_stop_at_enough(records_max: int, batches: int, records: int) -> None:
    buffer, headers = _run([2, 3, 1])
    expected = sum(each.batch_bytes for each in headers[:batches])
    assert skim_batches(buffer, records_max) == BatchRun(expected, batches, records, Offset(records))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 100))
def test_should_take_whole_batches_until_there_are_enough_records(counts: list[int], records_max: int) -> None:
    buffer, headers = _run(counts)
    taken = [each for i, each in enumerate(headers) if i == 0 or sum(counts[:i]) < records_max]
    assert skim_batches(buffer, records_max) == BatchRun(
        sum(each.batch_bytes for each in taken),
        len(taken),
        sum(each.record_count for each in taken),
        taken[-1].next_offset,
    )


@pytest.mark.parametrize("cut", [1, 64, 100])
def test_should_refuse_a_run_that_ends_within_a_batch(cut: int) -> None:
    buffer, _ = _run([1, 2])
    with pytest.raises(CorruptBatchError):
        skim_batches(buffer[:-cut], 100)


def test_should_refuse_a_length_that_leads_nowhere() -> None:
    buffer, _ = _run([1])
    damaged = buffer[:12] + bytes(4) + buffer[16:]
    with pytest.raises(CorruptBatchError, match="stamp_checksum"):
        skim_batches(damaged, 100)
    with pytest.raises(CorruptBatchError, match="ends within a batch"):
        skim_batches(b"", 100)

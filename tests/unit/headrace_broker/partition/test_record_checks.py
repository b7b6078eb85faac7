"""What a broker looks into before it takes a batch, and what that may cost."""

import pytest

from headrace.core.errors import BatchTooLargeError
from headrace.core.records.columns import record_columns
from headrace.core.records.header import Compression
from headrace.core.records.raw import RawBatch, split_batches
from headrace_broker.admission import JSON_BATCH_BYTES_MIN, Admission
from headrace_broker.partition.record_checks import check_batches
from tests.support.batches import encoded

MANY = JSON_BATCH_BYTES_MIN // 32


def newest_of(batches: list[RawBatch]) -> int | None:
    """The newest time of the first batch; None where it is not read."""
    times = batches[0].times
    return None if times is None else times.newest_ms


async def test_should_read_the_times_of_what_is_compressed() -> None:
    batches = split_batches(
        [encoded(record_columns([b"v"], timestamps_ms=7), Compression.ZSTD)], batch_bytes_max=1 << 20
    )
    assert newest_of(batches) is None, "nothing is unpacked before there is room for it"
    await check_batches(batches, Admission.for_memory(1 << 30))
    assert newest_of(batches) == 7


async def test_should_refuse_small_batches_that_take_much_memory_together() -> None:
    admission = Admission.for_memory(1 << 30)
    admission.conversions.limit_bytes = admission.conversions.left_bytes = 1
    small = encoded(record_columns([None] * MANY, timestamps_ms=7), Compression.ZSTD)
    assert len(small) < MANY // 2, "a part of what its times alone take"
    one = split_batches([small], batch_bytes_max=1 << 20)
    await check_batches(one, admission)
    with pytest.raises(BatchTooLargeError, match="of a request at most: send smaller batches, or fewer at once"):
        await check_batches(split_batches([small * 8], batch_bytes_max=1 << 20), admission)

"""A topic may ask for the leader's time instead of the producer's (KIP-32)."""

from headrace.core.records.columns import decode_batch
from headrace.core.records.raw import split_batches
from headrace.core.types import LeaderEpoch, Offset
from tests.support.batches import batch_of


def test_should_give_every_record_the_leaders_time_and_stay_a_valid_batch() -> None:
    (batch,) = split_batches([batch_of(b"a", b"b")], batch_bytes_max=1 << 20)

    batch.take_append_time(77).stamp(Offset(5), LeaderEpoch(3))

    decoded = decode_batch(b"".join(batch.buffers))
    assert decoded.header == batch.header
    assert [(offset, record.value, record.timestamp_ms) for offset, record in decoded.rows()] == [
        (5, b"a", 77),
        (6, b"b", 77),
    ]

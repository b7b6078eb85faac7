"""What a leader sends to a follower's log, in tests."""

from headrace.core.records.raw import RawBatch, split_replicated
from headrace.core.types import LeaderEpoch, Offset
from headrace_broker.storage.partition_log import PartitionLog
from tests.support.logs import NOW_MS, content_of, raw_batch


def stamped(base_offset: int, epoch: int, records: int = 1, value_bytes: int = 1000) -> RawBatch:
    """As a leader sends it."""
    batch = raw_batch(records, value_bytes, NOW_MS + 10 * base_offset)
    return batch.stamp(Offset(base_offset), LeaderEpoch(epoch))


def replicate(log: PartitionLog, offsets: range, epoch: int) -> bytes:
    """One record a batch; returns what was sent."""
    sent = b"".join(content_of(stamped(offset, epoch)) for offset in offsets)
    for batch in split_replicated([sent]):
        log.append_replicated([batch], NOW_MS)
    return sent


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    """(epoch, where it begins) of all."""
    return [(start.epoch, start.offset) for start in log.epochs.starts]

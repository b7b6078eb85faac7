"""What was appended or read just now is there for the followers, as long as it is little."""

import pytest

from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from headrace_broker.replication.recent_batches import REPLICATION_JOINED_BYTES, RecentBatches, Run
from tests.support.logs import content_of, raw_batch

EPOCH = LeaderEpoch(1)
A, B, C = (PartitionKey(TopicUid("uid-1"), PartitionId(number)) for number in range(3))
MUCH = 1 << 30


def run(nbytes: int = 4, next_offset: int = 6, *, is_one_batch: bool = True) -> Run:
    return Run(EPOCH, [bytes(nbytes)], nbytes, Offset(next_offset), is_one_batch)


def appended(*value_bytes: int) -> list[RawBatch]:
    """Batches of one record, from offset 5 on."""
    return [raw_batch(1, size).stamp(Offset(5 + i), EPOCH) for i, size in enumerate(value_bytes)]


def content(batches: list[RawBatch]) -> bytes:
    return b"".join(map(content_of, batches))


def found(recent: RecentBatches, offset: int, max_bytes: int = MUCH) -> tuple[bytes, int] | None:
    """The bytes, and where the next ones begin."""
    got = recent.find(A, EPOCH, Offset(offset), max_bytes)
    if got is None:
        return None
    joined = b"".join(bytes(buffer) for buffer in got.buffers)
    assert len(joined) == got.nbytes
    return joined, got.next_offset


def test_should_find_what_was_read_in_the_same_place_of_the_same_log() -> None:
    recent = RecentBatches()
    recent.read(A, Offset(5), run())
    assert found(recent, 5) == (bytes(4), 6)
    assert found(recent, 6) is None
    assert recent.find(A, LeaderEpoch(2), Offset(5), MUCH) is None
    assert recent.find(B, EPOCH, Offset(5), MUCH) is None


@pytest.mark.parametrize("value_bytes", [100, REPLICATION_JOINED_BYTES])
def test_should_give_out_what_was_appended_by_one_call_after_the_other(value_bytes: int) -> None:
    recent, batches = RecentBatches(), appended(*[value_bytes] * 4)
    recent.appended(A, batches[:1])
    recent.appended(A, batches[1:])
    assert found(recent, 5) == (content(batches), 9)
    assert found(recent, 6) == (content(batches[1:]), 9)


def test_should_give_out_no_more_than_is_asked_for_or_one_batch() -> None:
    recent, batches = RecentBatches(), appended(100, 100, 100, 100)
    for few in (batches[:1], batches[1:2], batches[2:]):
        recent.appended(A, few)
    size = batches[0].nbytes
    assert found(recent, 5, 3 * size) == (content(batches[:2]), 7)
    assert found(recent, 5, size) == (content(batches[:1]), 6)
    assert found(recent, 5, 1) == (content(batches[:1]), 6)
    assert found(recent, 7, 2 * size) == (content(batches[2:]), 9)
    assert found(recent, 7, 2 * size - 1) is None, "two batches are one run: the log has each by itself"


def test_should_never_mix_epochs() -> None:
    recent, batches = RecentBatches(), appended(100, 100)
    recent.appended(A, batches[:1])
    recent.appended(A, [batches[1].stamp(Offset(6), LeaderEpoch(2))])
    assert found(recent, 5) == (content(batches[:1]), 6)
    assert found(recent, 6) is None


def test_should_keep_nothing_alive_that_is_much_larger_than_the_batch() -> None:
    recent, large = RecentBatches(), content(appended(2 * REPLICATION_JOINED_BYTES))
    arrived = large + bytes(4 * len(large))
    [batch] = split_batches([memoryview(arrived)[: len(large)]], batch_bytes_max=MUCH)
    recent.appended(A, [batch.stamp(Offset(5), EPOCH)])
    got = recent.find(A, EPOCH, Offset(5), MUCH)
    assert got is not None
    assert len(got.buffers) == 1
    assert memoryview(got.buffers[0]).nbytes == len(large)


def test_should_keep_the_last_few() -> None:
    recent = RecentBatches(bytes_max=8)
    for key in (A, B, A, C):
        recent.read(key, Offset(5), run())
    assert [recent.find(key, EPOCH, Offset(5), MUCH) is not None for key in (A, B, C)] == [True, False, True]
    recent.read(B, Offset(5), run(9))
    assert [recent.find(key, EPOCH, Offset(5), MUCH) for key in (A, B, C)] == [None, None, None]


def test_should_not_keep_more_runs_than_it_may() -> None:
    recent = RecentBatches(runs_max=2)
    for offset in (5, 6, 7):
        recent.read(A, Offset(offset), run(next_offset=offset + 1))
    assert found(recent, 5) is None
    assert found(recent, 6) == (bytes(8), 8)

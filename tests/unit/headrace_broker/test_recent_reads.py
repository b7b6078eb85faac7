"""What was read for one follower is there for the others, as long as it is little."""

from headrace.core.types import LeaderEpoch, Offset, PartitionId, PartitionKey, TopicUid
from headrace_broker.replication.recent_reads import Read, RecentReads

EPOCH = LeaderEpoch(1)
A, B, C = (PartitionKey(TopicUid("uid-1"), PartitionId(number)) for number in range(3))


def read(offset: int, nbytes: int = 4, epoch: LeaderEpoch = EPOCH) -> Read:
    return Read(epoch, Offset(offset), [bytes(nbytes)], Offset(offset + 1), Offset(9))


def test_should_find_what_was_read_in_the_same_place_of_the_same_log() -> None:
    reads = RecentReads(100)
    reads.keep(A, read(5))
    assert reads.find(A, EPOCH, Offset(5), Offset(9)) == read(5)
    assert reads.find(A, EPOCH, Offset(6), Offset(9)) is None
    assert reads.find(A, EPOCH, Offset(5), Offset(10)) is None
    assert reads.find(A, LeaderEpoch(2), Offset(5), Offset(9)) is None
    assert reads.find(B, EPOCH, Offset(5), Offset(9)) is None


def test_should_keep_the_last_few() -> None:
    reads = RecentReads(8)
    for key in (A, B, A, C):
        reads.keep(key, read(5))
    assert [reads.find(key, EPOCH, Offset(5), Offset(9)) is not None for key in (A, B, C)] == [True, False, True]
    reads.keep(B, read(5, 9))
    assert [reads.find(key, EPOCH, Offset(5), Offset(9)) for key in (A, B, C)] == [None, None, None]

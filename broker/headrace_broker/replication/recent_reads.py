"""What was read for one follower just now, for the others, who ask for the same in the same moment.

One for all streams of a broker. Of each partition the last piece is kept, and of all of them the last few: they are
asked for within a turn or two of the loop. A piece is named by its leader epoch, where it begins, and where the log
ended; in one epoch a leader's log only grows, so that what was read stays true.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core.limits import REPLICATION_SHARED_BYTES_MAX
from headrace.core.session.frames import Buffer
from headrace.core.types import LeaderEpoch, Offset, PartitionKey


class Read(NamedTuple):
    leader_epoch: LeaderEpoch
    offset: Offset
    buffers: Sequence[Buffer]
    next_offset: Offset
    log_end: Offset
    """As it was when they were read."""

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buffers))


class RecentReads:
    def __init__(self, bytes_max: int = REPLICATION_SHARED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._reads: dict[PartitionKey, Read] = {}
        """The last one last."""
        self._nbytes = 0

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch, offset: Offset, log_end: Offset) -> Read | None:
        read = self._reads.get(key)
        if read is None or (read.leader_epoch, read.offset, read.log_end) != (leader_epoch, offset, log_end):
            return None
        return read

    def keep(self, key: PartitionKey, read: Read) -> None:
        self._forget(key)
        self._reads[key] = read
        self._nbytes += read.nbytes
        while self._nbytes > self._bytes_max:
            self._forget(next(iter(self._reads)))

    def _forget(self, key: PartitionKey) -> None:
        read = self._reads.pop(key, None)
        if read is not None:
            self._nbytes -= read.nbytes

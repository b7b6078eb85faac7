"""The batches that were appended or read just now, kept for the followers, which all ask for them in the same moment.

One for all partitions of a broker. A follower that keeps up is sent what was appended from here, as it was received:
nothing is read back from the log. Runs of batches are found by where they begin; the oldest go first, of whatever
partition. In one epoch a leader's log only grows, so that what was appended or read in it stays true.

Invariant: what the runs keep alive is at most twice as much as they have, and that is bounded, as is their number.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.core.frames.frame import Buffer
from headrace.core.records.raw import RawBatch
from headrace.core.types import LeaderEpoch, Offset, PartitionKey

REPLICATION_RECENT_BYTES_MAX = 8 << 20
"""The bytes of recent batches that are kept for followers, over all partitions ..."""
REPLICATION_RECENT_RUNS_MAX = 4096
"""... and in so many pieces."""
REPLICATION_JOINED_BYTES = 64 << 10
"""The bytes up to which batches that are appended together are one piece."""


class Run(NamedTuple):
    """A run of whole batches, one after the other."""

    leader_epoch: LeaderEpoch
    """The epoch in which they were appended or read: not always the one that they are stamped with."""
    buffers: Sequence[Buffer]
    nbytes: int
    next_offset: Offset
    is_one_batch: bool


class RecentBatches:
    def __init__(
        self, bytes_max: int = REPLICATION_RECENT_BYTES_MAX, runs_max: int = REPLICATION_RECENT_RUNS_MAX
    ) -> None:
        self._bytes_max = bytes_max
        self._runs_max = runs_max
        self._runs: dict[tuple[PartitionKey, Offset], Run] = {}
        """The runs in the order in which they came."""
        self._nbytes = 0

    def appended(self, key: PartitionKey, batches: Sequence[RawBatch]) -> None:
        """Keep batches that this leader has stamped and appended. They do not change any more."""
        small: list[RawBatch] = []
        small_bytes = 0
        for batch in batches:
            if small and small_bytes + batch.nbytes > REPLICATION_JOINED_BYTES:
                self._keep(key, small)
                small, small_bytes = [], 0
            small.append(batch)
            small_bytes += batch.nbytes
        self._keep(key, small)

    def _keep(self, key: PartitionKey, batches: Sequence[RawBatch]) -> None:
        first, last = batches[0].header, batches[-1].header
        nbytes = sum(batch.nbytes for batch in batches)
        buffers: Sequence[Buffer] = [buffer for batch in batches for buffer in batch.buffers]
        if nbytes <= REPLICATION_JOINED_BYTES or _kept_alive(buffers) > 2 * nbytes:
            buffers = [b"".join(buffers)]
        run = Run(first.leader_epoch, buffers, nbytes, last.next_offset, len(batches) == 1)
        self.read(key, first.base_offset, run)

    def read(self, key: PartitionKey, offset: Offset, run: Run) -> None:
        """Keep what this leader has read of its log: `run` begins at `offset`, or with the batch that holds it."""
        self._forget((key, offset))
        self._runs[key, offset] = run
        self._nbytes += run.nbytes
        while self._nbytes > self._bytes_max or len(self._runs) > self._runs_max:
            self._forget(next(iter(self._runs)))

    def find(self, key: PartitionKey, leader_epoch: LeaderEpoch, offset: Offset, max_bytes: int) -> Run | None:
        """Return batches from `offset` on, so many bytes at most, or one batch; None where they are not kept."""
        first = self._runs.get((key, offset))
        if first is None or first.leader_epoch != leader_epoch:
            return None
        if first.nbytes >= max_bytes:
            return first if first.is_one_batch or first.nbytes == max_bytes else None
        buffers, size, end = list(first.buffers), first.nbytes, first.next_offset
        while (run := self._runs.get((key, end))) is not None and run.leader_epoch == leader_epoch:
            if size + run.nbytes > max_bytes:
                break
            buffers += run.buffers
            size += run.nbytes
            end = run.next_offset
        return Run(leader_epoch, buffers, size, end, is_one_batch=False)

    def _forget(self, where: tuple[PartitionKey, Offset]) -> None:
        run = self._runs.pop(where, None)
        if run is not None:
            self._nbytes -= run.nbytes


def _kept_alive(buffers: Sequence[Buffer]) -> int:
    """Return the bytes of what the buffers are parts of."""
    return sum(memoryview(memoryview(buffer).obj).nbytes for buffer in buffers)

"""A process that appends to a log without end, to be killed: `python -m tests.support.log_writer DATA BATCHES`.

BATCHES is a file of unstamped batches with one record each; the batch at offset n is number n modulo their count.
Writes the incarnation that it took and then, as soon as the log vouches for them, the end of what is acknowledged:
a decimal number a line on standard output.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.core.log.group_commit import Effect, GroupCommit, Sync
from headrace.core.log.segments import LogConfig
from headrace.core.records.header import BatchHeader
from headrace.core.records.raw import RawBatch, split_batches
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, PartitionId, PartitionKey, TopicName, TopicUid
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.partition_store import PartitionDescription

CONFIG = LogConfig(segment_bytes=1_000_000, segment_ms=1 << 40, durability=Durability.FSYNC)
IN_FLIGHT_MAX = 50
DESCRIPTION = PartitionDescription(
    TopicName("default", "killed"), PartitionKey(TopicUid("aa-bb"), PartitionId(0)), {"partitions": 1}
)


def split_file(path: Path) -> list[bytes]:
    content, batches = path.read_bytes(), []
    while content:
        size = BatchHeader.unpack(content).batch_bytes
        batches.append(content[:size])
        content = content[size:]
    return batches


def say(number: int) -> None:
    """At once and in one piece: this process does not live to flush a buffer."""
    os.write(sys.stdout.fileno(), f"{number}\n".encode())


class Writer:
    def __init__(self, log: PartitionLog, batches: list[bytes]) -> None:
        self._log = log
        self._batches = batches
        self._commit = GroupCommit(Durability.FSYNC, log.durable_end, log.log_end_offset)
        self._syncs = set[asyncio.Task[None]]()

    async def write(self, epoch: LeaderEpoch) -> None:
        while True:
            end = self._log.log_end_offset
            some = [self._batch(end + i) for i in range(1 + end % 3)]
            self._log.append(some, epoch, now_ms=0)
            size = sum(batch.nbytes for batch in some)
            self._carry_out(self._commit.appended(self._log.log_end_offset, size))
            await self._bound()

    async def _bound(self) -> None:
        """Readers of what was acknowledged must keep up, and so must the disk."""
        await asyncio.sleep(0)
        if self._commit.log_end - self._commit.durable_end > IN_FLIGHT_MAX:
            await asyncio.wait(self._syncs)

    def _batch(self, offset: int) -> RawBatch:
        return split_batches([self._batches[offset % len(self._batches)]], batch_bytes_max=1 << 30)[0]

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Sync):
                task = asyncio.create_task(self._sync())
                self._syncs.add(task)
                task.add_done_callback(self._syncs.discard)

    async def _sync(self) -> None:
        effects = self._commit.synced(await self._log.sync())
        say(self._commit.vouched_end)
        self._carry_out(effects)


def main() -> None:
    data = DataDirectory.open(Path(sys.argv[1]))
    incarnation = Incarnation(data.read_incarnation() + 1)
    data.write_incarnation(incarnation, Incarnation(incarnation - 1))
    log = data.open_log(DESCRIPTION, CONFIG, now_ms=0)
    say(incarnation)
    asyncio.run(Writer(log, split_file(Path(sys.argv[2]))).write(LeaderEpoch(incarnation)))


if __name__ == "__main__":
    main()

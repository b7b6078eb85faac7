"""The asyncio tasks of one partition's log: its syncs, its cuts, and the deletions that follow those of the leader.

`LogTasks` is the `LogPort` of a `PartitionShell`. The `Partition` owns it until the log is closed. Each task tells
once what became of it. It knows neither the shell nor the partition: a circle would keep a closed log, and the room of
its files, because what a broker began with is never collected.

Invariants: a cut goes on to its end; a cut that fails for want of room or of open files, or because of damage, is tried
again until it succeeds; whatever else goes wrong is told as a failure, so that nobody waits for it for ever. A disk
that fails here fails for the whole broker.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from prometheus_client import Histogram

from headrace.core.errors import (
    CorruptLogError,
    DiskFullError,
    HeadraceError,
    OffsetOutOfRangeError,
    StorageFailedError,
    ThrottledError,
)
from headrace.core.frames.frame import Buffer
from headrace.core.log.epochs import LeaderEpochs
from headrace.core.records.raw import split_replicated
from headrace.core.replication.events import (
    CutRefused,
    StartAnew,
    Synced,
    SyncFailed,
    Truncate,
    Truncated,
    WriteFailed,
)
from headrace.core.types import Offset
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import wall_ms
from headrace_broker.partition.cleaning import Cleaner
from headrace_broker.partition.queries import Place
from headrace_broker.partition.shell import CutDone, SyncDone
from headrace_broker.storage.log_appender import AppendedBatches
from headrace_broker.storage.partition_log import PartitionLog

CUT_RETRY_MS = 1_000
"""A follower's log that cannot be cut, for want of room or files or for damage, is tried again so much later."""


_log = logging.getLogger(__name__)


class LogTasks:
    def __init__(
        self, place: Place, log: PartitionLog, cleaner: Cleaner, disk: BrokerDisk, sync_seconds: Histogram
    ) -> None:
        self._place = place
        self._log = log
        self._cleaner = cleaner
        self._disk = disk
        self._sync_seconds = sync_seconds
        self._syncs: set[asyncio.Task[None]] = set()
        self._changes: set[asyncio.Task[None]] = set()
        """Cuts and deletions."""

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def epochs(self) -> LeaderEpochs:
        return self._log.epochs

    def taken(self, data: Sequence[Buffer]) -> tuple[Offset | None, Callable[[], int]]:
        batches = split_replicated(data)
        size = sum(batch.nbytes for batch in batches)

        def append() -> int:
            if batches:
                self.append(size, lambda: self._log.append_replicated(batches, wall_ms()))
            return size

        return batches[0].header.base_offset if batches else None, append

    def append(self, size: int, append: Callable[[], AppendedBatches]) -> AppendedBatches:
        """Append batches of `size` bytes in all. Raises DiskFullError, and what `append` raises."""
        self._disk.take(size)
        try:
            return append()
        except DiskFullError:
            self._disk.ran_out()
            raise

    def sync(self, done: SyncDone) -> None:
        self._start(self._sync(done), self._syncs)

    def cut(self, effect: Truncate | StartAnew, done: CutDone) -> None:
        _log.warning("%s: %s", self._place, effect)
        self._start(self._cut(effect, done), self._changes)

    def delete_below(self, offset: Offset, failed: Callable[[WriteFailed], None]) -> None:
        self._start(self._delete_below(offset, failed), self._changes)

    def failed(self, reason: str) -> None:
        self._disk.failed(self._place, reason)

    async def finish(self) -> None:
        """Wait for the syncs, but not for what can be tried again only later: the cleaner finishes what has begun."""
        for task in self._changes:
            task.cancel()
        await asyncio.gather(*self._changes, *self._syncs, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.create_task(work, name=f"log of {self._place}")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _sync(self, done: SyncDone) -> None:
        try:
            with self._sync_seconds.time():
                durable_end = await self._log.sync()
        except Exception as error:
            # Whatever it was: a sync that did not come back is a failed one, and nobody may wait for it for ever.
            _log.exception("%s: the sync failed", self._place)
            done(SyncFailed(str(error) or repr(error)))
        else:
            done(Synced(durable_end))

    async def _cut(self, effect: Truncate | StartAnew, done: CutDone) -> None:
        try:
            became = await self._made(effect)
        except Exception as error:
            # Whatever it was: a log that is cut in part is led by nobody, and nobody may wait for it for ever.
            _log.exception("%s: the cut failed", self._place)
            done(WriteFailed(str(error) or repr(error)))
        else:
            done(became)

    async def _made(self, effect: Truncate | StartAnew) -> Truncated | CutRefused:
        try:
            await self._change(effect)
        except (CorruptLogError, OffsetOutOfRangeError) as error:
            # The latter where records were deleted from the front since it was decided.
            _log.error("%s: the log cannot be cut: %s", self._place, error)
            await self._log.sync()
            await asyncio.sleep(CUT_RETRY_MS / 1000)  # The leader will ask for the same again.
            return CutRefused(error.message)
        return Truncated()

    async def _change(self, effect: Truncate | StartAnew) -> None:
        while True:
            try:
                match effect:
                    case Truncate(end, _, allowed):
                        await self._cleaner.truncate(end, allow_below_high_watermark=allowed)
                    case StartAnew(offset):
                        await self._cleaner.start_at(offset)
                return
            except (DiskFullError, ThrottledError) as error:
                _log.warning("%s: the log cannot be cut yet: %s", self._place, error)
            await asyncio.sleep(CUT_RETRY_MS / 1000)

    async def _delete_below(self, offset: Offset, failed: Callable[[WriteFailed], None]) -> None:
        try:
            await self._cleaner.delete_as_leader(offset)
        except StorageFailedError as error:
            failed(WriteFailed(str(error)))
        except HeadraceError as error:
            _log.warning("%s: what the leader has deleted stays for now: %s", self._place, error)

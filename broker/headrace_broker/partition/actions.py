"""The actions on the partitions of this broker: open, close, delete, set aside, adopt; one at a time for each.

Told by the reconcile loop, one per life. What touches the disk runs in threads; while it does, the partition is BUSY
and nothing else happens to it. Every end of an action calls `on_change`, so that the reconcile loop looks again. A log
that cannot be opened stays BROKEN until the next start; the others go on.

To open a log puts on disk what a crash has left of it, and to close it what came since. A stop is clean only where
nothing else is left: the machine may go down next, and a log that is trusted then must not have been in memory only.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.limits import HOLDING_RETRY_MS
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import may_act_on
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import LeaderEpoch, PartitionKey, SetUid
from headrace_broker.clock import wall_ms
from headrace_broker.metrics import Metrics
from headrace_broker.partition.holdings import HeldPartition, Holdings
from headrace_broker.partition.opening import Opener
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_store import PartitionDescription

ORPHAN_RETENTION_MS = 7 * 86_400_000
LOGS_OPENING_MAX = 8
"""Logs that a starting broker recovers at the same time."""
HOLDING_NEWS_MS = 100
"""The interval at which ended actions are looked at while others are under way."""


_log = logging.getLogger(__name__)


class PartitionActions:
    def __init__(
        self, holdings: Holdings, data: DataDirectory, opener: Opener, metrics: Metrics, on_change: Callable[[], None]
    ) -> None:
        self._holdings = holdings
        self._data = data
        self._opener = opener
        self._metrics = metrics
        self._on_change = on_change
        self._tasks: set[asyncio.Task[bool]] = set()
        self._opening = asyncio.Semaphore(LOGS_OPENING_MAX)
        self._news: asyncio.TimerHandle | None = None
        """Runs while actions have ended that `on_change` was not told of."""
        self.overdue: frozenset[PartitionKey] = frozenset()
        """Orphans whose retention was over when the disk was last looked at (`find_overdue`)."""

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def open(self, description: PartitionDescription, spec: TopicSpec, state: PartitionState, asked_by: SetUid) -> None:
        """Open its log, recovered. `asked_by`: the set that says so."""
        self._start(description.key, self._open(description, spec, state))
        self._holdings.entries[description.key].opened_for = asked_by

    def shut(self, key: PartitionKey) -> None:
        """Close its log; the data stays where it is."""
        self._start(key, self._shut(key))

    def configure(self, key: PartitionKey, spec: TopicSpec) -> None:
        """Apply what the Topic says; nothing happens where it said so before, or while something else happens."""
        held = self._holdings.entries[key]
        if held.holding is Holding.OPEN and held.spec != spec:
            self._start(key, self._configure(held, spec))

    def delete(self, key: PartitionKey) -> None:
        self._start(key, self._delete(key))

    def orphan(self, key: PartitionKey) -> None:
        self._start(key, self._orphan(key))

    def purge(self, key: PartitionKey) -> None:
        self._start(key, self._purge(key))

    def restore(self, key: PartitionKey) -> None:
        self._start(key, self._restore(key))

    def adopt(self, old: PartitionKey, new: PartitionKey, epoch: LeaderEpoch) -> None:
        """Make what is orphaned as `old` the data of `new`, whose first leader epoch is `epoch`."""
        self._start(old, self._adopt(old, new, epoch), failed=Holding.ORPHANED)

    async def find_overdue(self) -> None:
        """Look for orphans whose retention is over; whether they go is for the reconcile loop to say."""
        try:
            found = await asyncio.to_thread(self._data.store.overdue, wall_ms(), ORPHAN_RETENTION_MS)
        except HeadraceError as error:
            _log.warning("the orphaned data cannot be looked at: %s", error)
            return
        self.overdue = frozenset(found)
        if found:
            self._on_change()

    async def close(self, reason: str) -> bool:
        """Finish what is under way and close every log; True where all that is held is on disk then."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        closed = await asyncio.gather(
            *(partition.close(reason) for partition in self._holdings.open_partitions()), return_exceptions=True
        )
        failures = [failure for failure in closed if failure is not None]
        for failure in failures:
            _log.error("a log was not closed cleanly: %s", failure)
        unsynced = sum(held.is_unsynced for held in self._holdings.entries.values())
        if unsynced:
            _log.warning("not a clean stop: %d logs were not opened as a crash, or the disk, has left them", unsynced)
        return not (failures or unsynced)

    def _start(self, key: PartitionKey, action: Coroutine[Any, Any, None], *, failed: Holding = Holding.BROKEN) -> None:
        held = self._holdings.entries.setdefault(key, HeldPartition(Holding.BUSY))
        held.holding, held.surveyed, held.actions_begun = Holding.BUSY, None, held.actions_begun + 1
        task = asyncio.create_task(self._run(key, action, failed), name=f"holding {key}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _run(self, key: PartitionKey, action: Coroutine[Any, Any, None], failed: Holding) -> bool:
        """Carry out the action; True where it went well."""
        try:
            await action
        except HeadraceError as error:
            _log.error("%s (%s): %s", key, self._holdings.topic_of(key), error)
        except Exception:  # a mistake of our own must not leave the partition BUSY for good
            _log.exception("%s (%s)", key, self._holdings.topic_of(key))
        else:
            return True
        self._holdings.entries[key].holding = failed
        return False

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        loop = task.get_loop()
        if not task.result():
            # What has failed, as on a disk that cannot be written to, must not be tried again in a tight loop.
            loop.call_later(HOLDING_RETRY_MS / 1000, self._on_change)
        elif not self._tasks:
            self._tell()
        elif self._news is None:
            # A start opens a thousand logs: one look covers all that ends within a moment.
            self._news = loop.call_later(HOLDING_NEWS_MS / 1000, self._tell)

    def _tell(self) -> None:
        if self._news is not None:
            self._news.cancel()
            self._news = None
        self._on_change()

    async def _open(self, description: PartitionDescription, spec: TopicSpec, state: PartitionState) -> None:
        held = self._holdings.entries[description.key]
        held.description, held.spec = description, spec
        async with self._opening:
            seen = self._data.epochs_seen.read().get(description.key, NO_EPOCH)
            opened = await self._opener.open(description, spec, state, seen)
        held.partition, held.damage, held.void_before = opened.partition, opened.damage, opened.void_before
        held.holding, held.is_unsynced = Holding.OPEN, False
        # On a full disk it may not be remembered yet: then the reconcile loop applies it once it is.
        if may_act_on(state, opened.partition.replica.me.broker, seen):
            opened.partition.apply(state)

    async def _configure(self, held: HeldPartition, spec: TopicSpec) -> None:
        """Write it beside the data first: whoever finds the data alone must know what it was promised."""
        assert held.partition is not None, "only an open partition is configured"
        assert held.description is not None, "an open partition is described"
        held.description, held.spec = replace(held.description, spec=spec.to_object()), spec
        try:
            await asyncio.to_thread(self._data.store.prepare, held.description, wall_ms())
        except HeadraceError as error:
            _log.error("%s: its new spec is not written beside the data: %s", held.partition.place, error)
        held.partition.configure(spec)
        held.holding = Holding.OPEN

    async def _shut(self, key: PartitionKey) -> None:
        await self._close(key, "its PartitionSet was made anew")
        self._holdings.entries[key].holding = Holding.RESTING

    async def _delete(self, key: PartitionKey) -> None:
        await self._close(key, "its topic is deleted")
        await asyncio.to_thread(self._data.store.delete, key)
        del self._holdings.entries[key]

    async def _orphan(self, key: PartitionKey) -> None:
        await self._close(key, "it is set aside")
        await asyncio.to_thread(self._data.store.orphan, key, wall_ms())
        self._holdings.entries[key].holding = Holding.ORPHANED

    async def _purge(self, key: PartitionKey) -> None:
        purged = await asyncio.to_thread(self._data.store.purge, key, wall_ms(), ORPHAN_RETENTION_MS)
        self.overdue -= {key}
        if purged:
            del self._holdings.entries[key]
        else:
            self._holdings.entries[key].holding = Holding.ORPHANED

    async def _restore(self, key: PartitionKey) -> None:
        await asyncio.to_thread(self._data.store.restore, key)
        self._holdings.entries[key].holding = Holding.RESTING

    async def _adopt(self, old: PartitionKey, new: PartitionKey, epoch: LeaderEpoch) -> None:
        # Should the old topic return with the API server's old data, it is refused: it would begin empty here.
        await asyncio.to_thread(self._data.epochs_seen.write, {old: epoch})
        await asyncio.to_thread(self._data.store.adopt, old, new)
        self._holdings.entries[new] = HeldPartition(
            Holding.RESTING, is_unsynced=self._holdings.entries.pop(old).is_unsynced
        )

    async def _close(self, key: PartitionKey, reason: str) -> None:
        held = self._holdings.entries[key]
        partition, held.partition = held.partition, None
        if partition is None:
            return
        self._metrics.forget(partition.place.topic, partition.place.partition)
        try:
            await partition.close(reason)
        except HeadraceError as error:
            held.is_unsynced = True
            _log.warning("%s: closed with an error: %s", partition.place, error)

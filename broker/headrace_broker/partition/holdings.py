"""The partitions whose data is on this broker: opened, closed, deleted, set aside, one action at a time for each.

Owned by the process, from the opening of the data directory to its close. What touches the disk runs in threads; while
it does, the partition is BUSY and nothing else happens to it. Every end of an action calls `on_change`, so that the
reconcile loop looks again. A log that cannot be opened stays BROKEN until the next start; the others go on.

To open a log puts on disk what a crash has left of it, and to close it what came since. A stop is clean only where
nothing else is left: the machine may go down next, and a log that is trusted then must not have been in memory only.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.core.control.broker_reports import HeldLog
from headrace.core.errors import HeadraceError
from headrace.core.limits import HOLDING_RETRY_MS
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import NO_LIFE, LogFacts, may_act_on, why_void
from headrace.core.replication.set_writer import LocalReplica
from headrace.core.resources.metadata import InvalidResourceError
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import DeletionPolicy, TopicSpec
from headrace.core.types import Incarnation, LeaderEpoch, PartitionId, PartitionKey, SetUid, TopicName, TopicUid
from headrace_broker.clock import wall_ms
from headrace_broker.metrics import Metrics, PartitionGauges
from headrace_broker.partition.opening import Opener
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.data_directory import DataDirectory, GivingAway
from headrace_broker.storage.partition_store import PartitionDescription, StoredPartition

ORPHAN_RETENTION_MS = 7 * 86_400_000
LOGS_OPENING_MAX = 8
"""Logs that a starting broker recovers at the same time."""
HOLDING_NEWS_MS = 100
"""While other actions on partitions are under way, those that have ended are looked at this often."""


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HeldPartition:
    holding: Holding
    description: PartitionDescription | None = None
    spec: TopicSpec | None = None
    """As the description says; None where that cannot be used."""
    partition: Partition | None = None
    """While it is open."""
    opened_for: SetUid | None = None
    """The set that asked for that."""
    damage: str = ""
    """Why the log was not intact when it was opened ..."""
    void_before: Incarnation = NO_LIFE
    """... and which seats in it are void for what that, or an earlier start, has found."""
    surveyed: HeldLog | None = None
    """How far the log reaches, as `cluster.reports` has read it: what is closed does not change, and after kill -9 its
    headers are long to read."""
    is_unsynced: bool = False
    """A crash, or a close that failed, may have left the end of its log in memory only: until it is opened."""
    actions: int = 0
    """Begun on it in this life: each makes what was seen before old news."""

    def facts(self, partition: Partition, seen: LeaderEpoch) -> LogFacts:
        """What is known of the log while it is open; `seen` is the greatest epoch that is remembered of it."""
        return LogFacts(max(partition.log.last_epoch, seen), self.damage, self.void_before)

    def why_void(self, partition: Partition) -> str:
        """Why this broker's seat in it is void, by the state that the partition has heard of last."""
        facts, state = self.facts(partition, NO_EPOCH), partition.replica.state
        return facts.damage if state is None else why_void(state, partition.replica.me, facts)

    @property
    def deletion_policy(self) -> DeletionPolicy:
        """What nobody knows is kept."""
        return DeletionPolicy.RETAIN if self.description is None else self.description.deletion_policy


class Holdings:
    def __init__(self, data: DataDirectory, metrics: Metrics, on_change: Callable[[], None]) -> None:
        self._data = data
        self._metrics = metrics
        self._on_change = on_change
        self.entries: dict[PartitionKey, HeldPartition] = {}
        self._tasks: set[asyncio.Task[bool]] = set()
        self._opening = asyncio.Semaphore(LOGS_OPENING_MAX)
        self._news: asyncio.TimerHandle | None = None
        """Runs while actions have ended that `on_change` was not told of."""
        self.regressed: frozenset[PartitionKey] = frozenset()
        """Of which the API server shows something else than what has landed, under no greater epoch."""
        self.overdue: frozenset[PartitionKey] = frozenset()
        """Orphans whose retention was over when the disk was last looked at (`find_overdue`)."""

    async def load(self) -> None:
        """See what the disk holds, before anything else. Raises StorageFailedError."""
        # After a boot nothing is in memory, and what may be missing is marked on disk.
        was_killed = self._data.same_boot and not self._data.stopped_cleanly
        for stored in await asyncio.to_thread(self._data.store.partitions):
            held = HeldPartition(Holding.RESTING, stored.description, _spec_of(stored), is_unsynced=was_killed)
            self.entries[stored.key] = held
        # Those were closed before they were set aside, or else that life did not call its stop clean.
        for stored in await asyncio.to_thread(self._data.store.orphans):
            self.entries[stored.key] = HeldPartition(Holding.ORPHANED, stored.description, _spec_of(stored))
        for policy in DeletionPolicy:
            self._metrics.orphaned_partitions.labels(policy.value).set_function(partial(self._count_orphans, policy))

    @property
    def is_busy(self) -> bool:
        return bool(self._tasks)

    def find(self, key: PartitionKey) -> Partition | None:
        """None where it is not open."""
        held = self.entries.get(key)
        return held.partition if held is not None else None

    def find_opened_for(self, partition_set: PartitionSet, number: PartitionId) -> Partition | None:
        """None where it is not open, or for another object of that name: what this one says is not for its ears."""
        held = self.entries.get(partition_set.key(number))
        return held.partition if held is not None and held.opened_for == partition_set.uid else None

    def open_partitions(self) -> list[Partition]:
        return [held.partition for held in self.entries.values() if held.partition is not None]

    def held(self) -> dict[PartitionKey, Holding]:
        return {key: held.holding for key, held in self.entries.items()}

    def logs(self) -> dict[PartitionKey, LogFacts]:
        """Of every open partition."""
        seen, facts = self._data.epochs_seen.read(), {}
        for key, held in self.entries.items():
            if held.partition is not None:
                facts[key] = held.facts(held.partition, seen.get(key, NO_EPOCH))
        return facts

    def opened_for(self) -> dict[PartitionKey, SetUid]:
        """By which set, of every open partition."""
        opened = ((key, held.opened_for) for key, held in self.entries.items() if held.partition is not None)
        return {key: uid for key, uid in opened if uid is not None}

    def local(self, key: PartitionKey, seen: LeaderEpoch, *, asks: bool) -> LocalReplica | None:
        """What this broker has of a partition, for its wishes; with its leader where that is to be asked.

        `seen` is the greatest epoch that is remembered of it.
        """
        held = self.entries.get(key)
        if held is None:
            return None
        partition = held.partition
        if partition is None:
            return LocalReplica(held.holding)
        leader = partition.replica
        facts = held.facts(partition, seen)
        least = leader.rules.min_insync_replicas
        return LocalReplica(held.holding, facts, least, leader if asks and leader.leads else None)

    @property
    def giving_away(self) -> GivingAway:
        return self._data.giving_away

    def topic_of(self, key: PartitionKey) -> TopicName:
        """As its description says; named by its uid where that is lost."""
        held = self.entries.get(key)
        return held.description.topic if held is not None and held.description is not None else TopicName("", key.uid)

    def specs(self) -> dict[TopicUid, TopicSpec]:
        """As they stand beside the data: for topics that the API server does not show just now."""
        return {key.uid: held.spec for key, held in self.entries.items() if held.spec is not None}

    def open(
        self,
        description: PartitionDescription,
        spec: TopicSpec,
        state: PartitionState,
        asked_by: SetUid,
        opener: Opener,
    ) -> None:
        self._start(description.key, self._open(description, spec, state, opener))
        self.entries[description.key].opened_for = asked_by

    def shut(self, key: PartitionKey) -> None:
        """Close its log; the data stays where it is."""
        self._start(key, self._shut(key))

    def configure(self, key: PartitionKey, spec: TopicSpec) -> None:
        """The Topic says so; nothing happens where it said so before, or while something else happens."""
        held = self.entries[key]
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
        """What is orphaned as `old` is `new`, whose first leader epoch is `epoch`."""
        self._start(old, self._adopt(old, new, epoch), failed=Holding.ORPHANED)

    def gauges(self) -> Iterable[PartitionGauges]:
        return [partition.gauges() for partition in self.open_partitions()]

    async def checkpoint(self) -> None:
        """Put the high watermarks on disk that moved."""
        for partition in self.open_partitions():
            try:
                await partition.checkpoint()
            except HeadraceError as error:
                _log.warning("%s: high watermark not checkpointed: %s", partition.place, error)

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

    def drain(self) -> None:
        """Long polls end now, with what there is."""
        for partition in self.open_partitions():
            partition.drain()

    async def close(self, reason: str) -> bool:
        """Finish what is under way and close every log; True where all that is held is on disk then."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        closed = await asyncio.gather(
            *(partition.close(reason) for partition in self.open_partitions()), return_exceptions=True
        )
        failures = [failure for failure in closed if failure is not None]
        for failure in failures:
            _log.error("a log was not closed cleanly: %s", failure)
        unsynced = sum(held.is_unsynced for held in self.entries.values())
        if unsynced:
            _log.warning("not a clean stop: %d logs were not opened as a crash, or the disk, has left them", unsynced)
        return not (failures or unsynced)

    def _start(self, key: PartitionKey, action: Coroutine[Any, Any, None], *, failed: Holding = Holding.BROKEN) -> None:
        held = self.entries.setdefault(key, HeldPartition(Holding.BUSY))
        held.holding, held.surveyed, held.actions = Holding.BUSY, None, held.actions + 1
        task = asyncio.create_task(self._run(key, action, failed), name=f"holding {key}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _run(self, key: PartitionKey, action: Coroutine[Any, Any, None], failed: Holding) -> bool:
        """Whether it went well."""
        try:
            await action
        except HeadraceError as error:
            _log.error("%s (%s): %s", key, self.topic_of(key), error)
        except Exception:  # a mistake of our own must not leave the partition BUSY for good
            _log.exception("%s (%s)", key, self.topic_of(key))
        else:
            return True
        self.entries[key].holding = failed
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

    async def _open(
        self, description: PartitionDescription, spec: TopicSpec, state: PartitionState, opener: Opener
    ) -> None:
        held = self.entries[description.key]
        held.description, held.spec = description, spec
        async with self._opening:
            seen = self._data.epochs_seen.read().get(description.key, NO_EPOCH)
            opened = await opener.open(description, spec, state, seen)
        held.partition, held.damage, held.void_before = opened.partition, opened.damage, opened.void_before
        held.holding, held.is_unsynced = Holding.OPEN, False
        # On a full disk it may not be remembered yet: then the reconcile loop applies it once it is.
        if may_act_on(state, opened.partition.replica.me.broker, seen):
            opened.partition.apply(state)

    async def _configure(self, held: HeldPartition, spec: TopicSpec) -> None:
        """Beside the data first: whoever finds the data alone must know what it was promised."""
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
        self.entries[key].holding = Holding.RESTING

    async def _delete(self, key: PartitionKey) -> None:
        await self._close(key, "its topic is deleted")
        await asyncio.to_thread(self._data.store.delete, key)
        del self.entries[key]

    async def _orphan(self, key: PartitionKey) -> None:
        await self._close(key, "it is set aside")
        await asyncio.to_thread(self._data.store.orphan, key, wall_ms())
        self.entries[key].holding = Holding.ORPHANED

    async def _purge(self, key: PartitionKey) -> None:
        purged = await asyncio.to_thread(self._data.store.purge, key, wall_ms(), ORPHAN_RETENTION_MS)
        self.overdue -= {key}
        if purged:
            del self.entries[key]
        else:
            self.entries[key].holding = Holding.ORPHANED

    async def _restore(self, key: PartitionKey) -> None:
        await asyncio.to_thread(self._data.store.restore, key)
        self.entries[key].holding = Holding.RESTING

    async def _adopt(self, old: PartitionKey, new: PartitionKey, epoch: LeaderEpoch) -> None:
        # Should the old topic return with the API server's old data, it is refused: it would begin empty here.
        await asyncio.to_thread(self._data.epochs_seen.write, {old: epoch})
        await asyncio.to_thread(self._data.store.adopt, old, new)
        self.entries[new] = HeldPartition(Holding.RESTING, is_unsynced=self.entries.pop(old).is_unsynced)

    async def _close(self, key: PartitionKey, reason: str) -> None:
        held = self.entries[key]
        partition, held.partition = held.partition, None
        if partition is None:
            return
        self._metrics.forget(partition.place.topic, partition.place.partition)
        try:
            await partition.close(reason)
        except HeadraceError as error:
            held.is_unsynced = True
            _log.warning("%s: closed with an error: %s", partition.place, error)

    def _count_orphans(self, policy: DeletionPolicy) -> int:
        orphans = (held for held in self.entries.values() if held.holding is Holding.ORPHANED)
        return sum(held.deletion_policy is policy for held in orphans)


def _spec_of(stored: StoredPartition) -> TopicSpec | None:
    if stored.description is None:
        return None
    try:
        return TopicSpec.parse(stored.description.spec)
    except InvalidResourceError as error:
        _log.warning("%s: the description beside the data cannot be used: %s", stored.key, error)
        return None

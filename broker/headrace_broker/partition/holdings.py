"""The partitions whose data is on this broker, and how each of them is held: open, closed, set aside, broken.

One per process, from the opening of the data directory to its close. `PartitionActions` changes it; the reconcile loop,
routes, coordinators and reports read it, on the event loop.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from headrace.core.control.broker_reports import HeldLog
from headrace.core.errors import HeadraceError
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import NO_LIFE, LogFacts, why_void
from headrace.core.replication.set_writer import LocalReplica
from headrace.core.resources.metadata import InvalidResourceError
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import DeletionPolicy, TopicSpec
from headrace.core.types import Incarnation, LeaderEpoch, PartitionId, PartitionKey, SetUid, TopicName, TopicUid
from headrace_broker.metrics import Metrics, PartitionGauges
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.data_directory import DataDirectory, GivingAway
from headrace_broker.storage.partition_store import PartitionDescription, StoredPartition

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class HeldPartition:
    holding: Holding
    description: PartitionDescription | None = None
    spec: TopicSpec | None = None
    """The spec in the description; None where that cannot be used."""
    partition: Partition | None = None
    """The partition, while it is open."""
    opened_for: SetUid | None = None
    """The set that it was opened for."""
    damage: str = ""
    """Why the log was not intact when it was opened ..."""
    void_before: Incarnation = NO_LIFE
    """... and which seats in it are void for what that, or an earlier start, has found."""
    surveyed: HeldLog | None = None
    """The log as `cluster.reports` has read it: a closed one does not change, and its headers may be long to read."""
    is_unsynced: bool = False
    """A crash, or a close that failed, may have left the end of its log in memory only: until it is opened."""
    actions_begun: int = 0
    """The actions begun on it in this life: each makes what was read before out of date."""

    def facts(self, partition: Partition, seen: LeaderEpoch) -> LogFacts:
        """Return what is known of the open log; `seen` is the greatest epoch that is remembered of it."""
        return LogFacts(max(partition.log.last_epoch, seen), self.damage, self.void_before)

    def why_void(self, partition: Partition) -> str:
        """Say why this broker's seat in it is void, by the state that the partition has heard of last."""
        facts, state = self.facts(partition, NO_EPOCH), partition.replica.state
        return facts.damage if state is None else why_void(state, partition.replica.me, facts)

    @property
    def deletion_policy(self) -> DeletionPolicy:
        """The policy of its topic; what nobody knows is kept."""
        return DeletionPolicy.RETAIN if self.description is None else self.description.deletion_policy


class Holdings:
    def __init__(self, data: DataDirectory, metrics: Metrics) -> None:
        self._data = data
        self._metrics = metrics
        self.entries: dict[PartitionKey, HeldPartition] = {}
        self.regressed: frozenset[PartitionKey] = frozenset()
        """Partitions of which the API server shows something else than what has landed, under no greater epoch."""

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
        """Return what is known of the log of every open partition."""
        seen, facts = self._data.epochs_seen.read(), {}
        for key, held in self.entries.items():
            if held.partition is not None:
                facts[key] = held.facts(held.partition, seen.get(key, NO_EPOCH))
        return facts

    def opened_for(self) -> dict[PartitionKey, SetUid]:
        """Return the set that each open partition was opened for."""
        opened = ((key, held.opened_for) for key, held in self.entries.items() if held.partition is not None)
        return {key: uid for key, uid in opened if uid is not None}

    def local(self, key: PartitionKey, seen: LeaderEpoch, *, asks: bool) -> LocalReplica | None:
        """Return what this broker has of a partition, for its wishes; with its leader where that is to be asked.

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
        """Return the topic in its description; one named by its uid where that is lost."""
        held = self.entries.get(key)
        return held.description.topic if held is not None and held.description is not None else TopicName("", key.uid)

    def specs(self) -> dict[TopicUid, TopicSpec]:
        """Return the specs that stand beside the data: for topics that the API server does not show just now."""
        return {key.uid: held.spec for key, held in self.entries.items() if held.spec is not None}

    def gauges(self) -> Iterable[PartitionGauges]:
        return [partition.gauges() for partition in self.open_partitions()]

    async def checkpoint(self) -> None:
        """Put the high watermarks on disk that moved."""
        for partition in self.open_partitions():
            try:
                await partition.checkpoint()
            except HeadraceError as error:
                _log.warning("%s: high watermark not checkpointed: %s", partition.place, error)

    def drain(self) -> None:
        """End long polls now, with what there is."""
        for partition in self.open_partitions():
            partition.drain()

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

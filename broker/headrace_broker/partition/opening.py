"""The opening of one partition: recovers its log, and finds out whether it still holds all that this broker voted for.

A log that is not intact is marked on disk (`void-before`) before anything else happens with it, so that no later start
takes its older seats for good.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.log.epochs import NO_EPOCH
from headrace.core.log.recovery import DiskFacts, ReplicaFacts, why_not_intact
from headrace.core.log.segments import LogConfig
from headrace.core.replication.isr import InSyncRules
from headrace.core.replication.replica import Replica
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Incarnation, LeaderEpoch, PartitionKey, Seat, TopicName, TopicUid
from headrace_broker.clock import wall_ms
from headrace_broker.partition.partition import Host, Partition
from headrace_broker.partition.queries import Place
from headrace_broker.storage.data_directory import DataDirectory
from headrace_broker.storage.partition_log import PartitionLog
from headrace_broker.storage.partition_store import PartitionDescription

_log = logging.getLogger(__name__)

Warn = Callable[[TopicName, TopicUid, str, str], None]
"""Topic, its uid, a CamelCase reason, the message."""


@dataclass(frozen=True, slots=True)
class Opened:
    partition: Partition
    damage: str
    """Why this start found the log not intact; empty where it was."""
    void_before: Incarnation
    """Seats of older lives are void, whatever this start found."""


class Opener:
    """One per process; `found` is how the disk was at its start."""

    def __init__(self, data: DataDirectory, found: DiskFacts, me: Seat, host: Host) -> None:
        self._data = data
        self._found = found
        self._me = me
        self._host = host
        self._opened: set[PartitionKey] = set()
        """The partitions that this life has opened: what is there of them is what it left."""
        self.warn: Warn = _log_loss
        """Tells the Topic's owner of a loss; whoever can do more than log sets it."""

    async def open(
        self,
        description: PartitionDescription,
        spec: TopicSpec,
        state: PartitionState,
        seen: LeaderEpoch = NO_EPOCH,
    ) -> Opened:
        """`seen`: the greatest epoch that this broker was told of. Recovery runs in a thread.

        Raises StorageFailedError, DiskFullError.
        """
        in_sync = self._me in state.isr
        log, damage, void_before = await asyncio.to_thread(self._recover, description, spec, in_sync)
        if in_sync and damage:
            # It may lead already, and nobody asks it for a claim: what it lacks is said here or nowhere.
            lost = f"partition {description.key.partition}: acknowledged records may be missing: {damage}"
            self.warn(description.topic, description.key.uid, "RecordsMayBeLost", lost)
        place = Place(description.topic, description.key.partition)
        about = _about(log)
        # A line for each of a thousand logs that are as they were left would hide the one that is not.
        level = logging.INFO if about else logging.DEBUG
        _log.log(level, "%s: opened, offsets %d to %d%s", place, log.log_start_offset, log.log_end_offset, about)
        replica = Replica(
            self._me,
            InSyncRules.of_topic(spec),
            log,
            durable_end=log.durable_end,
            last_epoch=max(log.last_epoch, seen),
            high_watermark=log.high_watermark_checkpoint,
        )
        partition = Partition(description.key, place, log, replica, self._host)
        partition.times.warn = lambda reason, told: self.warn(description.topic, description.key.uid, reason, told)
        partition.configure(spec)
        return Opened(partition, damage, void_before)

    def _recover(
        self, description: PartitionDescription, spec: TopicSpec, in_sync: bool
    ) -> tuple[PartitionLog, str, Incarnation]:
        store, damage = self._data.store, ""
        store.restore(description.key)
        was_there = store.has(description.key)
        log = self._data.open_log(description, LogConfig.of_topic(spec), wall_ms())
        is_known = description.key in self._opened
        self._opened.add(description.key)
        # What a seat of this life names may have been set aside by an earlier one: it was not looked at since.
        if not (in_sync and (is_known or not was_there)):
            damage = why_not_intact(self._found, ReplicaFacts(log.recovery if was_there else None, spec.durability))
        if damage:
            store.write_void_before(description.key, self._me.incarnation)
        log.accept_loss()
        void_before = store.void_before(description.key)
        return log, damage, self._me.incarnation if void_before is None else void_before


def _log_loss(topic: TopicName, _uid: TopicUid, reason: str, message: str) -> None:
    _log.warning("%s: %s: %s", topic, reason, message)


def _about(log: PartitionLog) -> str:
    report = log.recovery
    cut = f", cut {report.cut_bytes} bytes ({report.cut_reason})" if report.cut_reason else ""
    return f"; scanned {report.scanned_bytes} bytes{cut}" if report.scanned_bytes or cut else ""

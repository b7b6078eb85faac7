"""The reports of this broker to operators: which logs it holds, and what it promises (`core.control.broker_reports`).

Logs that are not open are read as far as their headers tell, in threads, one request after the other; what is read of
them is remembered until something happens to them. A report is signed with the seat of this life: there is none before
the process has an incarnation. One per process, made before that and told of the seat by the process.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.core.control.broker_reports import (
    BrokerReport,
    Epochs,
    HeldLog,
    PromisedLog,
    Promises,
    known_epochs,
    may_promise,
)
from headrace.core.errors import NotReadyError
from headrace.core.log.epochs import NO_EPOCH
from headrace.core.replication.residency import Holding
from headrace.core.types import LeaderEpoch, PartitionKey, Seat, TopicUid
from headrace_broker.cluster.view import ClusterView
from headrace_broker.partition.holdings import HeldPartition, Holdings
from headrace_broker.partition.partition import Partition
from headrace_broker.storage.data_directory import DataDirectory


class LogReports:
    def __init__(self, holdings: Holdings, view: ClusterView, data: DataDirectory) -> None:
        self._holdings = holdings
        self._view = view
        self._data = data
        self.seat: Seat | None = None
        """The seat of this very process. The view may show the Lease of an earlier or a later one."""
        self._surveying = asyncio.Lock()

    async def report(self, uids: Collection[TopicUid] | None = None) -> BrokerReport:
        """Return what this broker holds and which epochs it knows, of these topics or of all. Raises NotReadyError."""
        seat = self._signed()
        logs = await self.survey(uids)
        opened = (self._holdings.find(key) for key in logs)
        states = {each.key: each.replica.state for each in opened if each is not None}
        applied = {key: state for key, state in states.items() if state is not None}
        known = known_epochs(self._data.epochs_seen.read(), self._view.states, applied)
        return BrokerReport(seat, {key: known[key] for key in known if uids is None or key.uid in uids}, logs)

    async def promises(self, asked: Mapping[PartitionKey, Epochs]) -> Promises:
        """Return what those logs hold that are open and that nobody leads, once the epochs of the request are on disk.

        Raises NotReadyError; DiskFullError and StorageFailedError where nothing is promised.
        """
        seat = self._signed()
        able = {key: epochs for key, epochs in asked.items() if self._promised(key, epochs) is not None}
        seen = {key: epochs.leader_epoch for key, epochs in able.items()}
        await asyncio.to_thread(self._data.epochs_seen.write, seen)
        # Meanwhile somebody may have been elected: then the log does not stay as it is.
        found = {key: self._promised(key, epochs) for key, epochs in able.items()}
        return Promises(seat, {key: log for key, log in found.items() if log is not None})

    async def survey(self, uids: Collection[TopicUid] | None = None) -> dict[PartitionKey, HeldLog]:
        """Read every log on this disk, or of these topics; those that are not open as far as their headers tell.

        One call at a time. A caller that gives up before the end has not asked in vain: what was read is remembered.
        """
        async with self._surveying:
            return await self._survey(uids)

    def _signed(self) -> Seat:
        if self.seat is None:
            raise NotReadyError("this broker has no incarnation yet; try again")
        return self.seat

    async def _survey(self, uids: Collection[TopicUid] | None) -> dict[PartitionKey, HeldLog]:
        logs: dict[PartitionKey, HeldLog] = {}
        closed: dict[PartitionKey, Holding] = {}
        # All of it is seen at one moment: a log that closes while others are read must not be missing.
        for key, held in self._holdings.entries.items():
            if uids is not None and key.uid not in uids:
                continue
            if held.partition is not None:
                logs[key] = _open_log(held, held.partition)
            else:
                closed[key] = held.holding
        found = {key: await self._closed_log(key) for key in closed}
        holdings = self._holdings.held()
        for key, known in found.items():
            broken, aside = closed[key] is Holding.BROKEN, closed[key] is Holding.ORPHANED
            logs[key] = replace(known, trouble="its last action on it failed") if broken else known
            logs[key] = replace(logs[key], set_aside=aside and holdings.get(key) is Holding.ORPHANED)
        seen = self._data.epochs_seen.read()
        return {key: self._noted(key, log, seen) for key, log in logs.items()}

    async def _closed_log(self, key: PartitionKey) -> HeldLog:
        held = self._holdings.entries.get(key)
        if held is not None and held.surveyed is not None:
            return held.surveyed
        begun = held.actions_begun if held is not None else 0
        known = await asyncio.to_thread(self._data.store.last_known, key)
        if held is not None and held.actions_begun == begun and held.holding is not Holding.BUSY and not known.trouble:
            held.surveyed = known
        return known

    def _noted(self, key: PartitionKey, log: HeldLog, seen: Mapping[PartitionKey, LeaderEpoch]) -> HeldLog:
        namespace, regressed = self._holdings.topic_of(key).namespace, key in self._holdings.regressed
        return replace(log, seen_epoch=seen.get(key, NO_EPOCH), regressed=regressed, namespace=namespace)

    def _promised(self, key: PartitionKey, asked: Epochs) -> PromisedLog | None:
        held = self._holdings.entries.get(key)
        if held is None or held.partition is None:
            return None
        replica, log = held.partition.replica, held.partition.log
        if replica.is_cutting or not may_promise(replica.state, asked):
            return None
        return PromisedLog(log.last_epoch, log.log_end_offset, log.durable_end, held.why_void(held.partition))


def _open_log(held: HeldPartition, partition: Partition) -> HeldLog:
    log, replica = partition.log, partition.replica
    known = HeldLog(log.last_epoch, log.log_end_offset, partition.leads, held.why_void(partition))
    return replace(known, applied_epoch=replica.leader_epoch)

"""The loop that makes this broker hold what the API server asks for: observe, plan (pure), carry out.

It is level-triggered: woken whenever the cluster view or the holdings changed, it remembers new leader epochs on disk,
hands open partitions their state and carries out what `plan_residency` says; `SetWriting` writes the PartitionSets.
While the API server is away nothing here happens, and partitions that are led go on.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from headrace.core.errors import DiskFullError
from headrace.core.limits import HOLDING_RETRY_MS
from headrace.core.replication.residency import (
    Action,
    Adopt,
    Close,
    Delete,
    Leaving,
    ObservedPartitions,
    Open,
    Orphan,
    Purge,
    ReportRegressed,
    Restore,
    given_away,
    moved_in_sight,
    noted_removals,
    plan_residency,
    seen_leaving,
)
from headrace.core.replication.seats import is_superseded
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import TopicSpec
from headrace.core.types import Seat, TopicUid
from headrace_broker.cluster.lease import SupersededError
from headrace_broker.cluster.sets import SetWriting, TopicWarner
from headrace_broker.cluster.view import ClusterView
from headrace_broker.partition.actions import PartitionActions
from headrace_broker.partition.holdings import Holdings
from headrace_broker.storage.partition_store import PartitionDescription

_log = logging.getLogger(__name__)


class HoldingsReconciler:
    """The reconcile loop, one per process, run by one task."""

    def __init__(
        self,
        me: Seat,
        view: ClusterView,
        holdings: Holdings,
        actions: PartitionActions,
        writing: SetWriting,
        warner: TopicWarner,
    ) -> None:
        self._me = me
        self._view = view
        self._holdings = holdings
        self._actions = actions
        self._writing = writing
        self._warner = warner
        self._leaving: Leaving = {}
        """The partitions that this life sees being moved away."""
        self._reported: set[TopicUid] = set()
        """The topics whose epochs went back, as their owners were notified."""
        self.settled = asyncio.Event()
        """An event that is set once everything that belongs here was opened and claimed for the first time."""

    async def run(self) -> None:
        """Run until cancelled. Raises SupersededError, StorageFailedError."""
        while True:
            await self._view.changed.wait()
            self._view.changed.clear()
            if self._view.is_complete:
                await self._reconcile()

    async def _reconcile(self) -> None:
        sets = self._view.sets(key.uid for key in self._holdings.held())
        if is_superseded(self._me, sets):
            raise SupersededError(f"a seat is of a later life than {self._me}: this process must not go on")
        self._writing.take(sets)
        await self._remember(sets)
        self._writing.apply()
        specs = {**self._holdings.specs(), **self._view.specs()}
        self._configure(specs)
        # This comes last: a partition that is being configured is busy, and nothing else may happen to it.
        actions = plan_residency(self._observe(sets, specs.keys()))
        for action in actions:
            self._carry_out(action, specs)
        self._reported &= {action.key.uid for action in actions if isinstance(action, ReportRegressed)}
        self._writing.check()
        is_at_rest = all(isinstance(action, ReportRegressed) for action in actions) and not self._actions.is_busy
        if is_at_rest and not self._writing.has_claims:
            self.settled.set()

    async def _remember(self, sets: Sequence[PartitionSet]) -> None:
        """Remember leader epochs; epochs that cannot be put on disk are not acted upon (`apply`), which needs no check
        here."""
        try:
            await self._writing.remember()
        except DiskFullError as error:
            self._retry_later("new leaders are not followed: their epochs cannot be remembered", error)
        try:
            await self._note_going(sets)
        except DiskFullError as error:
            self._retry_later("what is given away from now on is kept for ever after a restart", error)

    def _retry_later(self, what: str, error: DiskFullError) -> None:
        _log.error("%s: %s", what, error)
        asyncio.get_running_loop().call_later(HOLDING_RETRY_MS / 1000, self._view.changed.set)

    async def _note_going(self, sets: Sequence[PartitionSet]) -> None:
        """Note what others are about to hold instead of this broker. Raises StorageFailedError, DiskFullError."""
        self._leaving = seen_leaving(self._leaving, self._me.broker, sets, self._writing.regressed)
        going = self._holdings.giving_away
        notes = noted_removals(going.notes, self._me.broker, sets, self._holdings.held())
        if notes != going.notes or going.is_behind:
            await asyncio.to_thread(going.write, notes)

    def _observe(self, sets: Sequence[PartitionSet], described: Collection[TopicUid]) -> ObservedPartitions:
        going = given_away(self._holdings.giving_away.notes, sets)
        held, logs, opened_for = self._holdings.held(), self._holdings.logs(), self._holdings.opened_for()
        kept = {uid for topic in self._view.topics() for uid in (topic.uid, TopicUid(topic.adopts))}
        in_sight = moved_in_sight(self._leaving, sets)
        return ObservedPartitions(
            self._me, sets, held, logs, opened_for, described, self._actions.overdue, going, in_sight, kept
        )

    def _configure(self, specs: Mapping[TopicUid, TopicSpec]) -> None:
        for partition in self._holdings.open_partitions():
            spec = specs.get(partition.key.uid)
            if spec is not None:
                self._actions.configure(partition.key, spec)

    def _carry_out(self, action: Action, specs: Mapping[TopicUid, TopicSpec]) -> None:
        match action:
            case Open(key, topic, state, asked_by, reason):
                _log.debug("%s/%d: opening: %s", topic, key.partition, reason)
                description = PartitionDescription(topic, key, specs[key.uid].to_object())
                self._actions.open(description, specs[key.uid], state, asked_by)
            case Close(key, reason):
                _log.warning("%s (%s): closing: %s", key, self._holdings.topic_of(key), reason)
                self._actions.shut(key)
            case Delete(key, reason):
                _log.info("%s: deleting the data: %s", key, reason)
                self._actions.delete(key)
            case Orphan(key, reason):
                self._actions.orphan(key)
                self._warner.warn(self._holdings.topic_of(key), key.uid, "DataOrphaned", f"{key}: {reason}")
            case Purge(key, reason):
                _log.warning("%s (%s): deleting the orphaned data: %s", key, self._holdings.topic_of(key), reason)
                self._actions.purge(key)
            case Adopt(key, old, state, reason):
                _log.info("%s: adopting the data of %s: %s", key, old, reason)
                self._actions.adopt(old, key, state.leader_epoch)
            case Restore(key, reason):
                _log.info("%s: taking the data back: %s", key, reason)
                self._actions.restore(key)
            case ReportRegressed(key, topic, reason):
                if key.uid not in self._reported:
                    self._reported.add(key.uid)
                    self._warner.warn(topic, key.uid, "MetadataRegressed", f"partition {key.partition}: {reason}")
            case _:
                assert_never(action)

"""A broker's part in the cluster, from the moment it has an incarnation until it stops: all of `cluster` together.

The process makes it and runs `work` as tasks. `hand_over` is for a stop that others can prepare for, `give_up` for one
that they cannot; `close` ends all that is still under way. Each of the tasks may raise SupersededError: a later life of
this broker has shown itself.

    asked to stop ──> the Lease says draining ──> three waits (`core.replication.draining`) ──> step down ──> stop

`Handover` runs between the request to stop and the stop: others take over what this broker leads, or all that it holds.
The operator moves leaderships away from brokers that drain, and replicas away from those whose ordinal the StatefulSet
asks for no longer, as long as it does; while it cannot be read, its last known state counts. Leaders take replicas that
have caught up into the ISR: until then this broker stays wherever too few would be in sync without it. All waits are
bounded: the stop always comes. While the API server is away nothing can be handed over, and nothing is waited for.

`LeaseNotes` keeps the problems in this broker's Lease up to date: that its disk is full, and which topics' epochs went
back. Others must know of a full disk before this broker steps down because of it: a leader that does not know would
take it into the ISR again at once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from headrace.core.limits import (
    API_REQUEST_TIMEOUT_MS,
    CATCH_UP_TIMEOUT_MS,
    DECOMMISSION_TIMEOUT_MS,
    HANDOVER_TIMEOUT_MS,
    ISR_TICK_MS,
    STEP_DOWN_TIMEOUT_MS,
)
from headrace.core.replication.draining import Placed, ToGiveAway, kept_in_sync, placed, to_give_away, to_hand_over
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.types import Seat, TopicUid
from headrace.kube.client import KubeClient
from headrace.kube.errors import ApiError, NotFoundError
from headrace.kube.resource import STATEFUL_SETS
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.clock import monotonic_ms
from headrace_broker.cluster.lease import LeaseHolder
from headrace_broker.cluster.reconciler import HoldingsReconciler
from headrace_broker.cluster.sets import SetCalls, SetMetrics, SetWriting, TopicWarner
from headrace_broker.cluster.view import ClusterView, follow_cluster
from headrace_broker.partition.actions import PartitionActions
from headrace_broker.partition.holdings import Holdings
from headrace_broker.partition.opening import Opener
from headrace_broker.storage.data_directory import EpochsSeen

CATCH_UP_LOOK_MS = 500
"""The interval at which it checks whether replicas have caught up."""
WAITED_FOR_NAMED_MAX = 20
"""The number of partitions that its log names then."""
DECOMMISSION_LOOK_MS = 2_000
"""The interval at which such a broker reads the StatefulSet again."""
HANDOVER_POLL_MS = 50
"""The interval at which it checks whether others have taken over."""


_log = logging.getLogger(__name__)
_DISK_FULL = "its disk is full"
_REMEDY = "no other broker can take them: start more, lower spec.replicas, or resume what is paused"


class LeaseNotes:
    def __init__(self, lease: LeaseHolder, disk: BrokerDisk, writing: SetWriting) -> None:
        self._lease = lease
        self._disk = disk
        self._writing = writing
        self._said = (lease.said.full, lease.said.regressed)
        """The notes that the API server is known to have."""

    async def keep(self) -> None:
        """Write notes without end. Raises SupersededError."""
        while True:
            await asyncio.sleep(ISR_TICK_MS / 1000)
            full, regressed = self._disk.is_full, self._writing.regressed
            if (full, regressed) != self._said:
                await self._say(full=full, regressed=regressed)

    async def _say(self, *, full: bool, regressed: frozenset[TopicUid]) -> None:
        try:
            await self._lease.note(full=full, regressed=regressed)
        except ApiError as error:
            _log.warning("the Lease could not be updated yet with this broker's problems: %s", error)
            return
        self._said = (full, regressed)
        self._writing.step_aside(_DISK_FULL if full else "")


class Handover:
    """The hand-over of a broker that is asked to stop."""

    def __init__(self, me: Seat, client: KubeClient, view: ClusterView, writing: SetWriting, namespace: str) -> None:
        self._me = me
        self._client = client
        self._view = view
        self._writing = writing
        self._namespace = namespace
        self._told: ToGiveAway | None = None
        self._kept_by: frozenset[str] = frozenset()
        """The partitions that would have too few in sync without this broker, as they were logged."""

    async def run(self) -> None:
        """Hand over: the Lease says that this broker drains; it continues everything else meanwhile."""
        asked_ms = monotonic_ms()
        self._writing.claims = False
        await self._give_away()
        await self._stay_in_sync(asked_ms + CATCH_UP_TIMEOUT_MS)
        await self._wait(self._led, "leaderships to hand over", HANDOVER_TIMEOUT_MS)
        self._writing.leave("it stops")
        if not await self._writing.settle(STEP_DOWN_TIMEOUT_MS / 1000):
            _log.warning("stopping while still in sync: the leaders notice it by themselves")

    async def _give_away(self) -> None:
        """Wait while the StatefulSet, named as the cluster, asks for fewer brokers."""
        deadline_ms, staying = monotonic_ms() + DECOMMISSION_TIMEOUT_MS, None
        while monotonic_ms() < deadline_ms:
            staying = await self._broker_set(staying)
            if staying is None or staying.asks_for(self._me.broker):
                return
            self._tell(self._held(staying))
            if await self._is_over(partial(self._awaited, staying), DECOMMISSION_LOOK_MS):
                return
        _log.warning("stopping after %d s with replicas that others need", DECOMMISSION_TIMEOUT_MS // 1000)

    async def _broker_set(self, last: BrokerSet | None) -> BrokerSet | None:
        """Return the StatefulSet's state now; where it cannot be read, the `last` one: one bad answer ends no move."""
        try:
            return await self._client.get(STATEFUL_SETS, self._view.cluster, self._namespace)
        except NotFoundError as error:
            _log.info("there is no StatefulSet that shows whether this broker returns: %s", error)
            return None
        except ApiError as error:
            _log.info("the StatefulSet cannot be read to see whether this broker returns: %s", error)
            return last

    def _tell(self, held: ToGiveAway) -> None:
        """Log each change."""
        if held == self._told:
            return
        self._told = held
        _log.info("draining: %d replicas to give away", held.moving)
        if held.needed:
            _log.warning("%d replicas wait: acks=all would be refused without them; %s", held.needed, _REMEDY)
        if held.left:
            _log.warning("%d replicas go with this broker, and their topics have one copy less; %s", held.left, _REMEDY)

    def _held(self, staying: BrokerSet) -> ToGiveAway:
        return to_give_away(self._placed(), self._me.broker, staying, self._view.ready_seats(monotonic_ms()))

    def _awaited(self, staying: BrokerSet) -> int:
        return self._held(staying).awaited

    async def _stay_in_sync(self, deadline_ms: int) -> None:
        """Wait while replicas catch up without which too few would be in sync: this broker follows and votes
        meanwhile."""
        if not await self._is_over(self._kept, deadline_ms - monotonic_ms(), CATCH_UP_LOOK_MS):
            _log.warning("stopping although too few replicas stay in sync: %s", _listed(sorted(self._kept_by)))

    def _kept(self) -> int:
        """Return the number of partitions that keep it; each new one is logged."""
        kept = kept_in_sync(self._placed(), self._me, self._view.ready_seats(monotonic_ms()))
        names = frozenset(map(str, kept))
        if not names <= self._kept_by:
            _log.info("draining: in sync until other replicas have caught up: %s", _listed(sorted(names)))
        self._kept_by = names
        return len(names)

    def _led(self) -> int:
        return to_hand_over(self._placed(), self._me, self._view.ready_seats(monotonic_ms()))

    def _placed(self) -> Iterator[Placed]:
        return placed(self._writing.sets(), self._view.topics(), self._view.regressed(monotonic_ms()))

    async def _wait(self, count: Callable[[], int], what: str, timeout_ms: int) -> None:
        left = count()
        if left:
            _log.info("draining: %d %s", left, what)
        if not await self._is_over(count, timeout_ms):
            _log.warning(
                "stopping with %d %s: no other broker has taken them within %d s", count(), what, timeout_ms // 1000
            )

    async def _is_over(self, count: Callable[[], int], timeout_ms: int, look_ms: int = HANDOVER_POLL_MS) -> bool:
        deadline_ms = monotonic_ms() + timeout_ms
        while monotonic_ms() < deadline_ms:
            if not count():
                return True
            await asyncio.sleep(look_ms / 1000)
        return not count()


def _listed(names: Sequence[str]) -> str:
    more = len(names) - WAITED_FOR_NAMED_MAX
    return ", ".join(names[:WAITED_FOR_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class LocalParts:
    """The parts that the process has on this machine."""

    holdings: Holdings
    actions: PartitionActions
    opener: Opener
    epochs_seen: EpochsSeen
    disk: BrokerDisk
    registry: CollectorRegistry


class ClusterMembership:
    def __init__(
        self, me: Seat, client: KubeClient, view: ClusterView, lease: LeaseHolder, here: LocalParts, namespace: str
    ) -> None:
        """Take `namespace`, that of the brokers' Leases."""
        metrics = SetMetrics(here.registry)
        self._view = view
        self._lease = lease
        self._client = client
        self._namespace = namespace
        self.warner = TopicWarner(client, me.broker)
        here.opener.warn = self.warner.warn
        self._calls = SetCalls(me, client, view, metrics, self.warner)
        self._writing = SetWriting(me, view, here.holdings, here.epochs_seen, self._calls)
        metrics.watch(self._writing.undecided)
        self._reconciler = HoldingsReconciler(me, view, here.holdings, here.actions, self._writing, self.warner)
        self._notes = LeaseNotes(lease, here.disk, self._writing)
        self._handover = Handover(me, client, view, self._writing, namespace)

    @property
    def settled(self) -> asyncio.Event:
        """Return an event that is set once everything that belongs here was opened and claimed for the first time."""
        return self._reconciler.settled

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the work, each part to be run as a task until it is cancelled."""
        return [
            *follow_cluster(self._client, self._view, self._namespace),
            self._lease.keep(),
            self._notes.keep(),
            self._reconciler.run(),
            self._writing.run(),
        ]

    async def hand_over(self) -> None:
        """Have others take over what this broker leads, or holds, as far as they can; then leave their ISRs."""
        if await self._lease.try_announce(clean=False):
            await self._handover.run()

    async def give_up(self, why: str) -> None:
        """Give up every seat, as the disk failed and none here is worth anything any more."""
        if not await self._writing.give_up(why, API_REQUEST_TIMEOUT_MS / 1000):
            _log.warning("not every seat was given up in time")

    async def close(self) -> None:
        await self._calls.close()
        await self.warner.close()

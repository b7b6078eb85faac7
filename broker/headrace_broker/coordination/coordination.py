"""A broker's part in the cluster, from the moment it has an incarnation until it stops: all of `coordination` together.

Made by the process, which runs `work` as tasks. `hand_over` is for a stop that others can prepare for, `give_up` for
one that they cannot; `close` ends whatever is still under way. Each of the tasks may raise SupersededError: a later
life of this broker has shown itself.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from headrace.core.limits import API_REQUEST_TIMEOUT_MS
from headrace.core.slotted import dataclass
from headrace.core.types import Seat
from headrace.kube.client import KubeClient
from headrace_broker.broker_disk import BrokerDisk
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.coordination.handing_over import Handover
from headrace_broker.coordination.lease import LeaseHolder
from headrace_broker.coordination.notes import Notes
from headrace_broker.coordination.reconcile import Reconciler
from headrace_broker.coordination.set_calls import SetCalls
from headrace_broker.coordination.set_metrics import SetMetrics
from headrace_broker.coordination.set_writing import SetWriting
from headrace_broker.coordination.telling import Teller
from headrace_broker.coordination.watches import watches
from headrace_broker.holdings import Holdings
from headrace_broker.opening import Opener
from headrace_broker.storage.epochs_seen import EpochsSeen

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Here:
    """What the process has on this machine."""

    holdings: Holdings
    opener: Opener
    epochs_seen: EpochsSeen
    disk: BrokerDisk
    registry: CollectorRegistry


class Coordination:
    def __init__(
        self, me: Seat, client: KubeClient, view: ClusterView, lease: LeaseHolder, here: Here, namespace: str
    ) -> None:
        """`namespace` is that of the brokers' Leases."""
        metrics = SetMetrics(here.registry)
        self._view = view
        self._lease = lease
        self._client = client
        self._namespace = namespace
        self.teller = Teller(client, me.broker)
        here.opener.warn = self.teller.warn
        self._calls = SetCalls(me, client, view, metrics, self.teller)
        self._writing = SetWriting(me, view, here.holdings, here.epochs_seen, self._calls)
        metrics.watch(self._writing.undecided)
        self._reconciler = Reconciler(me, view, here.holdings, here.opener, self._writing, self.teller)
        self._notes = Notes(lease, here.disk, self._writing)
        self._handover = Handover(me, client, view, self._writing, namespace)

    @property
    def settled(self) -> asyncio.Event:
        """Set once everything that belongs here was opened and claimed for the first time."""
        return self._reconciler.settled

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Each to be run as a task until it is cancelled."""
        return [
            *watches(self._client, self._view, self._namespace),
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
        """The disk failed: no seat here means anything any more."""
        if not await self._writing.give_up(why, API_REQUEST_TIMEOUT_MS / 1000):
            _log.warning("not every seat was given up in time")

    async def close(self) -> None:
        await self._calls.close()
        await self.teller.close()

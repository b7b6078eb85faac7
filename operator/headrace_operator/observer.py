"""The observation of the whole state for one pass: a few linearizable lists, and what this process knows about time.

Owns the monotonic clocks of the operator: `Liveness` of the brokers' Leases, `PodDeaths`, `SteadyTimers` and
`DeletionTimers`. Lives as long as the process; used in the event loop of the reconcile loop alone. A list that fails,
and a process that stood still, are gaps in our contact with the API server: the first picture after one restarts the
Leases' timers before it believes them.

`Workload` reads the brokers' Pods and their StatefulSet, as far as the operator may see them. Neither is needed:
without them broker deaths are known from Leases alone, and no broker is known to leave. So a refusal, a kind that the
API server does not have, or an object that cannot be read is logged once, and counts as no news of any broker.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from headrace.core.control.liveness import Liveness, PodDeaths
from headrace.core.control.observed import Broker, DeletionTimers, Observed, SteadyTimers, leaving_of, regressed_of
from headrace.core.limits import LEASE_RENEW_INTERVAL_MS
from headrace.core.resources.kubernetes_objects import POD_SELECTOR, BrokerPod, BrokerSet
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, Doubts, Whereabouts, broker_of
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId
from headrace.kube.client import KubeClient
from headrace.kube.errors import ForbiddenError, NotFoundError, UnreadableObjectError
from headrace.kube.resource import LEASES, PARTITION_SETS, PODS, STATEFUL_SETS, TOPICS

OPERATOR_PULSE_MS = 500
"""The interval at which the operator checks whether its process has been running all the time."""


_log = logging.getLogger(__name__)
T = TypeVar("T")


class Workload:
    def __init__(self, client: KubeClient, namespace: str, stateful_set: str) -> None:
        self._client = client
        self._namespace = namespace
        self._stateful_set = stateful_set
        self._told = ""
        """The message that was logged last."""
        self.unreadable = 0
        """The number among the objects that were asked for last."""

    async def pods(self) -> tuple[BrokerPod, ...] | None:
        """Return the Pods of the brokers; None where they cannot be read: that is no death of any. Raises ApiError."""
        listed = await self._if_allowed(self._client.list(PODS, namespace=self._namespace, label_selector=POD_SELECTOR))
        if listed is None:
            return None
        self.unreadable += listed.left_out
        return tuple(pod for pod in listed.items if pod.stateful_set == self._stateful_set)

    async def broker_set(self) -> BrokerSet | None:
        """Return the StatefulSet; None where there is none. Raises ApiError."""
        return await self._if_allowed(self._client.get(STATEFUL_SETS, self._stateful_set, self._namespace))

    async def _if_allowed(self, answer: Awaitable[T]) -> T | None:
        try:
            return await answer
        except NotFoundError:
            return None
        except (ForbiddenError, UnreadableObjectError) as error:
            self.unreadable += isinstance(error, UnreadableObjectError)
            if str(error) != self._told:
                _log.error("cannot read the brokers' Pods and StatefulSet: %s", error)
            self._told = str(error)
            return None


@dataclass(frozen=True, slots=True)
class Scope:
    """The cluster and the namespaces that this operator serves."""

    cluster: str
    lease_namespace: str
    finalizer_wait_ms: int
    whereabouts: Whereabouts | None = None
    """The places where brokers can be; None: wherever their Leases say."""

    @property
    def lease_selector(self) -> str:
        return f"{CLUSTER_LABEL}={self.cluster}"

    @property
    def stateful_set(self) -> str:
        """Return the name of the StatefulSet of the brokers."""
        return self.cluster


@dataclass(frozen=True, slots=True)
class Picture:
    topics: tuple[Topic, ...]
    """The topics of all clusters."""
    observed: Observed
    unreadable: int = 0
    """The number of objects that are there and cannot be read."""
    settled: bool = False
    """True where there was nothing to do about it."""


class Observer:
    def __init__(self, client: KubeClient, scope: Scope) -> None:
        self._client = client
        self._scope = scope
        self._liveness = Liveness()
        self._deaths = PodDeaths()
        self._workload = Workload(client, scope.lease_namespace, scope.stateful_set)
        self._steady = SteadyTimers()
        self._deletions = DeletionTimers(scope.finalizer_wait_ms)
        self._contact_ms = monotonic_ms()
        self._gap = False
        self._brokers: dict[BrokerId, Broker] = {}
        self._doubts = Doubts(scope.whereabouts) if scope.whereabouts is not None else None
        self._pulse_ms: int | None = None

    async def observe(self) -> Picture:
        """Read the state. Raises ApiError; the picture after that starts the timers anew."""
        self._workload.unreadable = 0
        try:
            sets, topics, leases, pods, broker_set = await asyncio.gather(
                self._client.list(PARTITION_SETS),
                self._client.list(TOPICS),
                self._client.list(
                    LEASES, namespace=self._scope.lease_namespace, label_selector=self._scope.lease_selector
                ),
                self._workload.pods(),
                self._workload.broker_set(),
            )
        except BaseException:
            self._gap = True
            raise
        now_ms = monotonic_ms()
        self._look(leases.items, pods, now_ms)
        believed = [self._believed(lease) for lease in leases.items]
        self._brokers = {lease.broker: Broker.of(lease, self._liveness, now_ms) for lease in believed}
        deleted = (topic.uid for topic in topics.items if topic.is_going)
        observed = Observed(
            cluster=self._scope.cluster,
            sets=sets.items,
            brokers=self._brokers,
            overdue=self._deletions.observe(deleted, now_ms),
            steady=self._steady.observe(self._brokers.values(), now_ms),
            leaving=leaving_of(self._brokers, broker_set),
            regressed=regressed_of(self._brokers.values()),
            unreadable=frozenset(broker for each in leases.unreadable if (broker := broker_of(each.name)) is not None),
            expected=frozenset(broker_set.ordinals if broker_set is not None else ()),
        )
        unreadable = sum(each.left_out for each in (sets, topics, leases)) + self._workload.unreadable
        return Picture(topics.items, observed, unreadable)

    def lease_seen(self, lease: BrokerLease) -> bool:
        """Take a Lease as a watch delivered it, and return whether its broker differs from the last picture."""
        now_ms = monotonic_ms()
        self._liveness.observe(lease, now_ms)
        return self._brokers.get(lease.broker) != Broker.of(self._believed(lease), self._liveness, now_ms)

    def _believed(self, lease: BrokerLease) -> BrokerLease:
        return lease if self._doubts is None else self._doubts.believed(lease, _log.warning)

    def next_change_ms(self) -> int | None:
        """Return when time alone changes the last picture, on `monotonic_ms`; it may be past already."""
        timers = (self._liveness.next_expiry_ms, self._steady.next_due_ms, self._deletions.next_due_ms)
        ends = (next_ms(self._contact_ms) for next_ms in timers)
        return min((end for end in ends if end is not None), default=None)

    async def keep_pulse(self) -> None:
        """Notice, for as long as this task runs, that the process stood still: a debugger, a frozen machine."""
        while True:
            self._feel_pulse()
            await asyncio.sleep(OPERATOR_PULSE_MS / 1000)

    def _feel_pulse(self) -> None:
        now_ms = monotonic_ms()
        if self._pulse_ms is not None and now_ms - self._pulse_ms > LEASE_RENEW_INTERVAL_MS:
            _log.warning(
                "the process stood still for %d ms: a Lease that was silent meanwhile proves nothing",
                now_ms - self._pulse_ms,
            )
            self._gap = True
        self._pulse_ms = now_ms

    def _look(self, leases: tuple[BrokerLease, ...], pods: tuple[BrokerPod, ...] | None, now_ms: int) -> None:
        if self._pulse_ms is not None:
            self._feel_pulse()  # The lists may have been answered before the process was stopped.
        if self._gap:
            self._liveness.restart(self._contact_ms, now_ms)
            self._gap = False
        self._liveness.observe_all(leases, now_ms)
        deaths = self._deaths.observe(pods, now_ms) if pods is not None else {}
        for broker, since_ms in deaths.items():
            _log.info("broker %d: its process has ended, as its Pod shows", broker)
            self._liveness.died(broker, since_ms)
        self._contact_ms = now_ms


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000

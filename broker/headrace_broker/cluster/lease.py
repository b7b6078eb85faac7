"""This broker's Lease: the broker takes it for a new incarnation at the start, renews it, and writes when it drains and
stops.

The incarnation is on disk before it is taken here, so that no crash can make two lives share one. Only compare-and-set
writes; a write of its own whose answer was lost is recognised, and is no other life. A Lease that a later incarnation
holds means that this process must exit at once (`SupersededError`). Losing contact with the API server is ordinary: the
renewal goes on trying, and produce and fetch go on.

At the start nothing can be done without the API server, so `patiently` and `ApiServerWait` wait for it. A process that
ended instead would be started again by the kubelet, later each time: up to five minutes after the API server is back.
SIGTERM ends the wait. While it waits for the Lease, the port is open: `/healthz` answers, `/readyz` does not. While it
waits for the certificate (`--tls-secret`), the port is not open yet: there is nothing to show to a client that
connects.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Final, NamedTuple, TypeVar

from headrace.core.errors import HeadraceError
from headrace.core.limits import LEASE_RENEW_INTERVAL_MS
from headrace.core.replication.seats import Seen, greatest_incarnation, regressed_topics
from headrace.core.resources.lease import CLUSTER_LABEL, BrokerLease, lease_name
from headrace.core.resources.metadata import Metadata
from headrace.core.types import BrokerId, Incarnation, TopicUid
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    NotFoundError,
    UnreadableObjectError,
)
from headrace.kube.resource import LEASES, PARTITION_SETS
from headrace_broker.clock import monotonic_ms
from headrace_broker.metrics import Metrics

CAS_RETRIES_MAX = 20
API_AWAY_REMINDER_MS = 60_000
"""The interval at which a broker that waits for the API server at its start logs that again."""


T = TypeVar("T")
_log = logging.getLogger(__name__)
_NOTHING_SEEN: Final[Seen] = {}


class ApiServerWait:
    """The patience of one wait; `what` it is for, as a clause."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._backoff = Backoff(Random())
        self._told_ms: int | None = None

    async def pause(self, why: ApiUnavailableError) -> None:
        """Pause before the next request; the wait is logged at first, and once in a while."""
        now_ms = monotonic_ms()
        if self._told_ms is None or now_ms - self._told_ms >= API_AWAY_REMINDER_MS:
            self._told_ms = now_ms
            _log.warning("waiting for the API server %s: %s", self._what, why)
        await asyncio.sleep(self._backoff.next_ms() / 1000)


async def patiently(call: Callable[[], Awaitable[T]], what: str) -> T:
    """Return the result of `call` once the API server answers. Raises every other answer: waiting would not change
    it."""
    patience = ApiServerWait(what)
    while True:
        try:
            return await call()
        except ApiUnavailableError as error:
            await patience.pause(error)


class SupersededError(HeadraceError):
    """A later life of this broker holds the Lease or a seat: two processes must not both be broker N."""

    code = "Superseded"


class Taken(NamedTuple):
    """A life of this broker, and what there was before it."""

    incarnation: Incarnation
    known: Incarnation
    """The greatest incarnation that the Lease and any seat had just before: a disk with a lower one missed a life."""


class LeaseHolder:
    """The holder of this broker's Lease, one per process."""

    def __init__(self, client: KubeClient, metrics: Metrics, vacant: BrokerLease) -> None:
        self._client = client
        self._metrics = metrics
        self._wanted = vacant
        """The Lease as this broker wants it; its metadata and incarnation are those that were last read or written."""
        self._known = Incarnation(0)
        """The greatest incarnation that the Lease and the seats had before this process wrote any."""
        self._sent: deque[str] = deque(maxlen=CAS_RETRIES_MAX)
        """The renew times of the last requests, with or without an answer."""
        self._writing = asyncio.Lock()
        self.renewed_ms = 0
        """The time of the request that renewed it last, by this process's monotonic clock."""

    @property
    def said(self) -> BrokerLease:
        """Return the Lease as this broker wants it."""
        return self._wanted

    async def _known_incarnation(self, seen: Seen) -> Incarnation:
        """Return the greatest incarnation of this broker in the Lease and any seat; 0 where it never lived.

        Topics of which the API server shows less than was `seen` are named in the Lease from its first moment on.
        """
        lease = await self._read()
        cluster = self._wanted.cluster
        listed = (await self._client.list(PARTITION_SETS)).items
        # Another cluster on this API server has a broker of this number too; its lives are not ours.
        sets = [a_set for a_set in listed if a_set.metadata.labels.get(CLUSTER_LABEL, cluster) == cluster]
        self._wanted = replace(self._wanted, regressed=regressed_topics(sets, seen))
        known = greatest_incarnation(self._wanted.broker, lease.incarnation, sets)
        is_ours = known == lease.incarnation and lease.renew_time in self._sent
        self._known = self._known if is_ours else known
        return self._known

    async def acquire(
        self,
        on_disk: Incarnation,
        write_incarnation: Callable[[Incarnation, Incarnation], None],
        seen: Seen = _NOTHING_SEEN,
    ) -> Taken:
        """Take the next incarnation, as soon as the API server answers. Raises ApiError for what it refuses.

        `write_incarnation(incarnation, known)` has put both on disk, fsynced, when it returns. `seen` are the leader
        epochs that this broker remembers.
        """
        conflicts, patience = 0, ApiServerWait("to take the lease")
        while conflicts < CAS_RETRIES_MAX:
            try:
                known = await self._known_incarnation(seen)
                incarnation = Incarnation(1 + max(on_disk, known))
                await _in_thread(write_incarnation, incarnation, known)
                on_disk = incarnation
                await self._write(replace(self._wanted, incarnation=incarnation))
            except (ConflictError, AlreadyExistsError) as error:
                # The other writer may have lived under the very number that our disk holds now: `known` shows that.
                _log.info("the Lease changed while it was taken, trying again: %s", error)
                conflicts += 1
            except ApiUnavailableError as error:
                await patience.pause(error)
            else:
                return Taken(incarnation, known)
        raise SupersededError(
            f"the lease changed {CAS_RETRIES_MAX} times while it was taken: is another process broker"
            f" {self._wanted.broker} too?"
        )

    async def keep(self) -> None:
        """Renew without end. Raises SupersededError."""
        while True:
            await asyncio.sleep(LEASE_RENEW_INTERVAL_MS / 1000)
            try:
                await self._renew()
            except ApiError as error:
                self._metrics.lease_renewals.labels("failed").inc()
                level = logging.ERROR if isinstance(error, UnreadableObjectError) else logging.WARNING
                _log.log(level, "lease not renewed, trying again: %s", error)
            else:
                self._metrics.lease_renewals.labels("renewed").inc()

    async def announce(self, *, draining: bool, clean: bool) -> None:
        """Announce that this broker drains, or has stopped with everything on disk. Raises ApiError,
        SupersededError."""
        async with self._writing:
            self._wanted = replace(self._wanted, draining=draining, clean=clean)
        await self._renew()

    async def try_announce(self, *, clean: bool) -> bool:
        """Announce that this broker drains, or has stopped with everything on disk; return whether the API server has
        it.

        This is best effort: readers of the Lease find out by its age too. Raises SupersededError.
        """
        try:
            await self.announce(draining=True, clean=clean)
        except ApiError as error:
            _log.warning("the Lease could not be updated for the stop: %s", error)
            return False
        return True

    async def note(self, *, full: bool, regressed: frozenset[TopicUid]) -> None:
        """Write what others must know now. Raises ApiError, SupersededError; then the next renewal writes it."""
        async with self._writing:
            self._wanted = replace(self._wanted, full=full, regressed=regressed)
        await self._renew()

    async def _renew(self) -> None:
        async with self._writing:
            await self._compare_and_set()

    async def _compare_and_set(self) -> None:
        mine = self._wanted
        try:
            await self._write(mine)
        except (ConflictError, AlreadyExistsError, NotFoundError):
            lease = await self._read()
            if lease.incarnation > mine.incarnation:
                raise SupersededError(
                    f"broker {mine.broker} lives on as incarnation {lease.incarnation} at {lease.url}: this process"
                    f" (incarnation {mine.incarnation}) must not go on"
                ) from None
            await self._write(self._wanted)

    async def _read(self) -> BrokerLease:
        """Return the Lease as it is now, which is from here on the version to write upon."""
        try:
            lease = await self._client.get(LEASES, self._wanted.metadata.name, self._wanted.metadata.namespace)
        except NotFoundError:
            bare = replace(self._wanted.metadata, resource_version="", uid="")
            self._wanted = replace(self._wanted, metadata=bare)
            return replace(self._wanted, incarnation=Incarnation(0))
        labels = {**lease.metadata.labels, **self._wanted.metadata.labels}
        self._wanted = replace(self._wanted, metadata=replace(lease.metadata, labels=labels))
        return lease

    async def _write(self, wanted: BrokerLease) -> None:
        changed, sent_ms = wanted.renewed(_micro_time_now()), monotonic_ms()
        self._sent.append(changed.renew_time)
        if changed.metadata.resource_version:
            written = await self._client.replace(LEASES, changed.to_object())
        else:
            written = await self._client.create(LEASES, changed.to_object())
        self._wanted = replace(changed, metadata=written.metadata)
        self.renewed_ms = sent_ms


async def _in_thread(write: Callable[[Incarnation, Incarnation], None], *incarnations: Incarnation) -> None:
    """Write in a thread, to its end also where this is cancelled: the disk must not be closed meanwhile."""
    writing = asyncio.ensure_future(asyncio.to_thread(write, *incarnations))
    try:
        await asyncio.shield(writing)
    finally:
        await asyncio.wait([writing])


def vacant_lease(broker: BrokerId, namespace: str, cluster: str, url: str, zone: str) -> BrokerLease:
    """Return the Lease that a broker writes before it has read or taken anything."""
    metadata = Metadata(name=lease_name(broker), namespace=namespace, labels={CLUSTER_LABEL: cluster})
    return BrokerLease(metadata, broker, Incarnation(0), url, zone)


def _micro_time_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

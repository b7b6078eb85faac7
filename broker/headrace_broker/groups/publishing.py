"""ConsumerGroups of the groups that are coordinated here: created, kept true, deleted with groups that are forgotten.

    coordinators, the watch, lags ──> whose turn it is (core `publishing`) ──> what to do (core `upkeep`) ──> a request
                                              ^                                                                 │
                                              └───────── whatever it brought ── `KnownGroups` <─────────────────┘

Level-triggered: at its turn a group is compared with its ConsumerGroup as it was seen last. Each write is sent once, on
the version that was read; a conflict is followed by a GET, anything else by a pause with backoff, a long one where the
API server has refused for good (a namespace that is not there, a right that is not granted). Nobody waits for any of
it: while the API server is away groups go on, and when it returns what is true then is written. One per process.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import NamedTuple, assert_never

from headrace.core.groups.entries import Image
from headrace.core.groups.identity import GroupName, GroupState, GroupType
from headrace.core.groups.publishing import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    Publishing,
    Turn,
    Upkeep,
    WriteStatus,
    lags_shown,
    upkeep,
)
from headrace.core.groups.status import Report, report_of
from headrace.core.limits import (
    GROUP_REFUSED_MS_MAX,
    GROUP_REFUSED_MS_MIN,
    GROUP_UNUSED_MS,
    GROUP_WANTED_MS,
    GROUPS_WANTED_MAX,
)
from headrace.core.resources.consumer_group import ConsumerGroup, auto_created
from headrace.core.types import BrokerId
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from headrace.kube.resource import CONSUMER_GROUPS
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.groups.lag import SeenLag
from headrace_broker.groups.metrics import GroupWriteMetrics
from headrace_broker.groups.ports import CoordinatedGroups
from headrace_broker.groups.watching import KnownGroups

_log = logging.getLogger(__name__)
_STALE = (ConflictError, AlreadyExistsError, NotFoundError)
"""What was known is not so any more."""


class _Pauses(Backoff):
    """Long ones after a refusal, which nobody but people will change."""

    def __init__(self, is_long: bool) -> None:
        self.is_long = is_long
        if is_long:
            super().__init__(Random(), GROUP_REFUSED_MS_MIN, GROUP_REFUSED_MS_MAX)
        else:
            super().__init__(Random())


class Wanted(NamedTuple):
    until_ms: int
    """Then it is given up."""
    type: GroupType


class GroupPublishing:
    def __init__(
        self,
        me: BrokerId,
        cluster: str,
        client: KubeClient,
        known: KnownGroups,
        groups: CoordinatedGroups,
        metrics: GroupWriteMetrics,
    ) -> None:
        self._me = me
        self._cluster = cluster
        self._client = client
        self._known = known
        self._groups = groups
        self._metrics = metrics
        self._publishing = Publishing()
        self._wanted: dict[GroupName, Wanted] = {}
        """Groups that nobody coordinates yet, and that have no ConsumerGroup: the oldest first."""
        self._unused: dict[GroupName, int] = {}
        """When a ConsumerGroup was first seen whose group nobody has ever joined."""
        self._backoffs: dict[GroupName, _Pauses] = {}
        """Of those whose last write has failed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self.lag_of: Callable[[GroupName], SeenLag | None] = lambda _: None

    async def run(self) -> None:
        """Until it is cancelled; then what is on its way is not waited for: it lands, or does not."""
        try:
            while True:
                self._news.clear()
                next_ms = self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if next_ms is None else max(0, next_ms - monotonic_ms()) / 1000):
                        await self._news.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def changed(self, group: GroupName) -> None:
        """It may have to be shown anew, if it is coordinated here."""
        self._publishing.changed(group, monotonic_ms())
        self._news.set()

    def seen(self, group: GroupName) -> None:
        """Its ConsumerGroup is another one, or gone: what was refused may not be any more."""
        pauses = self._backoffs.get(group)
        if pauses is not None and pauses.is_long:
            del self._backoffs[group]
            self._publishing.release(group, monotonic_ms())
        self.changed(group)

    def lag_changed(self, group: GroupName) -> None:
        self._publishing.lag_changed(group, monotonic_ms())
        self._news.set()

    def wanted(self, group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> None:
        """It has no coordinator: one comes with its ConsumerGroup."""
        now_ms = monotonic_ms()
        if not self._known.is_complete or self._known.find(group) or self._publishing.is_held(group, now_ms):
            return
        self._wanted.pop(group, None)
        if len(self._wanted) >= GROUPS_WANTED_MAX:
            oldest = next(iter(self._wanted))
            if self._wanted[oldest].until_ms > now_ms:
                return
            del self._wanted[oldest]
        self._wanted[group] = Wanted(now_ms + GROUP_WANTED_MS, group_type)
        self.changed(group)

    def changed_all(self) -> None:
        """Every group that is coordinated here, and every ConsumerGroup of one that would be."""
        for group in self._groups.all():
            self.changed(group.image.name)
        for resource in self._known.all():
            if self._groups.coordinates(resource.name):
                self.changed(resource.name)

    def forget(self, groups: Collection[GroupName]) -> None:
        """Somebody else shows them."""
        for group in groups:
            self._publishing.forget(group)
            self._unused.pop(group, None)
            self._backoffs.pop(group, None)

    def _look(self) -> int | None:
        """Whoever's turn it is; when the next one's is."""
        now_ms = monotonic_ms()
        while (turn := self._publishing.take(now_ms)) is not None:
            try:
                action = self._action(turn, now_ms)
            except Exception as error:  # a mistake of our own about one group must not leave the others unshown
                self._hold(turn.group, error)
                continue
            if action is not None:
                self._publishing.began(turn.group, now_ms)
                task = asyncio.create_task(self._run(turn.group, action), name=f"ConsumerGroup {turn.group}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return self._publishing.next_ms()

    def _action(self, turn: Turn, now_ms: int) -> Upkeep | None:
        group, resource = turn.group, self._known.find(turn.group)
        if not self._known.is_complete:
            return None  # all of them are looked at once they are listed
        if not self._groups.coordinates(group):
            wanted = self._wanted.get(group)
            if wanted is not None and wanted.until_ms > now_ms and resource is None:
                return CreateConsumerGroup(
                    auto_created(group, self._cluster, group_type=wanted.type), "somebody uses it"
                )
            self._wanted.pop(group, None)
            self.forget([group])
            return None
        self._wanted.pop(group, None)
        if not self._groups.is_settled(group):
            return None  # only what is committed is shown: it is looked at again then
        report = self._report(group, resource)
        if resource is None and report.state is GroupState.DEAD:
            self.forget([group])
            return None
        is_unused = self._is_unused(group, report, now_ms)
        return upkeep(resource, report, self._cluster, wall_ms(), is_for_lag=turn.is_for_lag, is_unused=is_unused)

    def _report(self, group: GroupName, resource: ConsumerGroup | None) -> Report:
        found, seen = self._groups.find(group), self.lag_of(group)
        image, state = (Image(group), GroupState.DEAD) if found is None else (found.image, found.state)
        lags = lags_shown(resource) if seen is None else seen.topics
        return report_of(image, state, self._me, self._groups.topics(group.namespace), lags)

    def _is_unused(self, group: GroupName, report: Report, now_ms: int) -> bool:
        """Whether the group has been dead for so long; it is looked at again when it has."""
        if report.state is not GroupState.DEAD:
            self._unused.pop(group, None)
            return False
        if group not in self._unused:
            self._unused[group] = now_ms
            asyncio.get_running_loop().call_later(GROUP_UNUSED_MS / 1000, self.changed, group)
        return now_ms - self._unused[group] >= GROUP_UNUSED_MS

    async def _run(self, group: GroupName, action: Upkeep) -> None:
        try:
            await self._carry_out(action)
        except Exception as error:  # a mistake of our own must not leave the group without anybody who writes
            await self._failed(group, action, error)
        else:
            self._metrics.writes.labels("landed").inc()
            self._backoffs.pop(group, None)
            _log.debug("%s: %s: %s", group, type(action).__name__, action.reason)
        finally:
            self._publishing.ended(group)
            self._news.set()

    async def _carry_out(self, action: Upkeep) -> None:
        match action:
            case CreateConsumerGroup(manifest):
                created = await self._client.create(CONSUMER_GROUPS, manifest)
                self._known.put(created)
                self.changed(created.name)
            case WriteStatus(resource):
                self._known.put(await self._client.replace(CONSUMER_GROUPS, resource.to_object(), subresource="status"))
            case DeleteConsumerGroup(metadata):
                path = metadata.name, metadata.namespace
                if action.release is not None:
                    released = await self._client.patch(CONSUMER_GROUPS, *path, action.release)
                    self._known.put(released)
                    metadata = released.metadata
                # The operator may hold it again meanwhile: then it is looked at again, and not left to be deleted.
                version = metadata.resource_version
                await self._client.delete(CONSUMER_GROUPS, *path, uid=metadata.uid, resource_version=version)
            case _:
                assert_never(action)

    async def _failed(self, group: GroupName, action: Upkeep, error: Exception) -> None:
        # Where it is to be created, it is the namespace that is not there.
        is_stale = isinstance(error, _STALE) and not (
            isinstance(action, CreateConsumerGroup) and isinstance(error, NotFoundError)
        )
        self._metrics.writes.labels("conflict" if is_stale else "failed").inc()
        if is_stale:
            try:
                await self._read(group)
            except Exception as unread:
                error, is_stale = unread, False
        self._hold(group, error, is_stale=is_stale)

    def _hold(self, group: GroupName, error: Exception, *, is_stale: bool = False) -> None:
        is_refused = isinstance(error, ApiError) and not (is_stale or error.retriable)
        if is_refused:
            self._wanted.pop(group, None)
        backoff = self._backoffs.get(group)
        if backoff is None or backoff.is_long is not is_refused:
            backoff = self._backoffs[group] = _Pauses(is_refused)
        wait_ms = backoff.next_ms()
        self._publishing.hold(group, monotonic_ms() + round(wait_ms))
        level = logging.INFO if is_stale else logging.WARNING if isinstance(error, ApiError) else logging.ERROR
        trace = None if isinstance(error, ApiError) else error
        _log.log(
            level, "%s: its ConsumerGroup is looked at again in %.0f ms: %r", group, wait_ms, error, exc_info=trace
        )

    async def _read(self, group: GroupName) -> None:
        self._publishing.asked(monotonic_ms())
        try:
            self._known.put(await self._client.get(CONSUMER_GROUPS, group.name, group.namespace))
        except NotFoundError:
            known = self._known.find(group)
            if known is not None:
                self._known.remove(known)

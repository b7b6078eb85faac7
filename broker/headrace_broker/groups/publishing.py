"""ConsumerGroups of the groups that are coordinated here: created, kept true, deleted with groups that are forgotten.

    coordinators, the watch, lags ──> whose turn it is (core `publishing`) ──> what to do (core `upkeep`) ──> a request
                                              ^                                                                 │
                                              └───────── whatever it brought ── `KnownGroups` <─────────────────┘

Level-triggered: at its turn a group is compared with its ConsumerGroup as it was seen last. Each write is sent once, on
the version that was read; a conflict is followed by a GET, anything else by a pause with backoff. Nobody waits for any
of it: while the API server is away groups go on, and when it returns what is true then is written. One per process.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import assert_never

from headrace.core.groups.identity import GroupName
from headrace.core.groups.image import Image
from headrace.core.groups.publishing import Publishing, Turn
from headrace.core.groups.sharing import GroupState
from headrace.core.groups.status import Report, report_of
from headrace.core.groups.upkeep import Create, Delete, Upkeep, WriteStatus, lags_shown, upkeep
from headrace.core.limits import GROUP_UNUSED_MS, GROUPS_WANTED_MAX
from headrace.core.resources.consumer_group import ConsumerGroup, auto_created
from headrace.core.types import BrokerId
from headrace.kube.backoff import Backoff
from headrace.kube.client import KubeClient
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
        self._wanted: set[GroupName] = set()
        """Groups that nobody coordinates yet, and that have no ConsumerGroup."""
        self._unused: dict[GroupName, int] = {}
        """When a ConsumerGroup was first seen whose group nobody has ever joined."""
        self._backoffs: dict[GroupName, Backoff] = {}
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

    def lag_changed(self, group: GroupName) -> None:
        self._publishing.lag_changed(group, monotonic_ms())
        self._news.set()

    def wanted(self, group: GroupName) -> None:
        """It has no coordinator: one comes with its ConsumerGroup."""
        if self._known.is_complete and self._known.find(group) is None and len(self._wanted) < GROUPS_WANTED_MAX:
            self._wanted.add(group)
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
            action = self._action(turn, now_ms)
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
            if group in self._wanted and resource is None:
                return Create(auto_created(group, self._cluster), "somebody uses it")
            self._wanted.discard(group)
            self.forget([group])
            return None
        self._wanted.discard(group)
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
            await self._failed(group, error)
        else:
            self._metrics.writes.labels("landed").inc()
            self._backoffs.pop(group, None)
            _log.debug("%s: %s: %s", group, type(action).__name__, action.reason)
        self._publishing.ended(group)
        self._news.set()

    async def _carry_out(self, action: Upkeep) -> None:
        match action:
            case Create(manifest):
                created = await self._client.create(CONSUMER_GROUPS, manifest)
                self._known.put(created)
                self.changed(created.name)
            case WriteStatus(resource):
                self._known.put(await self._client.replace(CONSUMER_GROUPS, resource.to_object(), subresource="status"))
            case Delete(metadata):
                if action.release is not None:
                    path = metadata.name, metadata.namespace
                    self._known.put(await self._client.patch(CONSUMER_GROUPS, *path, action.release))
                await self._client.delete(CONSUMER_GROUPS, metadata.name, metadata.namespace, uid=metadata.uid)
            case _:
                assert_never(action)

    async def _failed(self, group: GroupName, error: Exception) -> None:
        is_stale = isinstance(error, _STALE)
        self._metrics.writes.labels("conflict" if is_stale else "failed").inc()
        if is_stale:
            try:
                await self._read(group)
            except ApiError as unread:
                error = unread
        wait_ms = self._backoffs.setdefault(group, Backoff(Random())).next_ms()
        self._publishing.hold(group, monotonic_ms() + round(wait_ms))
        level = logging.INFO if is_stale else logging.WARNING if isinstance(error, ApiError) else logging.ERROR
        _log.log(level, "%s: its ConsumerGroup is looked at again in %.0f ms: %r", group, wait_ms, error)

    async def _read(self, group: GroupName) -> None:
        try:
            self._known.put(await self._client.get(CONSUMER_GROUPS, group.name, group.namespace))
        except NotFoundError:
            known = self._known.find(group)
            if known is not None:
                self._known.remove(known)

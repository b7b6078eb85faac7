"""The ConsumerGroup resources of the cluster. The broker takes the settings and targets that they hold. It creates and
updates those of the groups that it coordinates, and deletes them with groups that are forgotten.

    coordinators, the watch, lags ──> whose turn it is (core `publishing`) ──> what to do (core `upkeep`) ──> a request
                                              ^                                                                 │
                                              └───────── whatever it brought ── `KnownGroups` <─────────────────┘

`GroupWatching` is one endless watch over all namespaces, through lost connections and an API server that is away:
meanwhile everybody goes on with what was seen last. `KnownGroups` also learns from the answers to this broker's own
writes. A late watch may show an older state after a newer one: a write because of that meets a conflict, and is looked
at again. A ConsumerGroup that cannot be read stays as it was when it could be: neither gone nor another.

`GroupPublishing` is level-triggered: at its turn a group is compared with its ConsumerGroup as it was seen last. Each
write is sent once, on the version that was read; a conflict is followed by a GET, anything else by a pause with
backoff, a long one where the API server has refused for good (a namespace that is not there, a right that is not
granted). Nobody waits for any of it: while the API server is away groups go on, and when it returns the present truth
is written.

`GroupReporting` joins both with lags and metrics. One of each per process; bounded by the ConsumerGroups that there
are.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from random import Random
from typing import Any, NamedTuple, assert_never

from prometheus_client import CollectorRegistry

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
from headrace.core.groups.status import GroupReport, offered_of, report_of
from headrace.core.resources.consumer_group import ConsumerGroup, auto_created
from headrace.core.types import BrokerId
from headrace.kube.client import Backoff, KubeClient
from headrace.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from headrace.kube.resource import CONSUMER_GROUPS
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, watch
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.cluster.view import ClusterView
from headrace_broker.coordinators.group_coordinator import CoordinatedGroups, GroupsListener
from headrace_broker.coordinators.group_lag import GroupLags, SeenLag
from headrace_broker.coordinators.group_metrics import GroupMetrics, GroupWriteMetrics

GROUP_UNUSED_MS = 60_000
"""The time after which a ConsumerGroup is deleted that brokers created and whose group nobody has ever joined."""
GROUPS_WANTED_MAX = 16
"""The ConsumerGroups that a broker is about to create for groups that have no coordinator yet: the first brings it for
all, and clients ask again."""
GROUP_WANTED_MS = 60_000
"""The time that the broker tries for, after somebody has asked last."""
GROUP_REFUSED_MS_MIN = 10_000
GROUP_REFUSED_MS_MAX = 600_000
"""The longest pause after what the API server refuses for good: until somebody makes a namespace, or grants a right."""
GROUP_PAUSES_INTERVAL_MS = 10_000
"""The interval in which coordinators are told how long the pauses still take that end by the wall clock."""


_log = logging.getLogger(__name__)
_STALE = (ConflictError, AlreadyExistsError, NotFoundError)
"""The errors that show that what was known holds no more."""


class KnownGroups:
    """The ConsumerGroups as they were seen last, those of other clusters included: a name is taken by one of them."""

    def __init__(self) -> None:
        self.is_complete = False
        """Whether all of them were listed once."""
        self._resources: dict[GroupName, ConsumerGroup] = {}

    def find(self, group: GroupName) -> ConsumerGroup | None:
        return self._resources.get(group)

    def all(self) -> Collection[ConsumerGroup]:
        return self._resources.values()

    def list(self, resources: Iterable[ConsumerGroup], unreadable: Iterable[GroupName]) -> list[ConsumerGroup]:
        """Take the list of all ConsumerGroups, and keep what was known of the `unreadable`. Return the ones gone."""
        before = self._resources
        self._resources = {group: before[group] for group in unreadable if group in before}
        self._resources |= {resource.name: resource for resource in resources}
        self.is_complete = True
        return [resource for group, resource in before.items() if group not in self._resources]

    def put(self, resource: ConsumerGroup) -> None:
        self._resources[resource.name] = resource

    def remove(self, resource: ConsumerGroup) -> bool:
        """Remove a ConsumerGroup, and return whether it was known: there may be another one under its name."""
        known = self._resources.get(resource.name)
        if known is None or known.metadata.uid != resource.metadata.uid:
            return False
        del self._resources[resource.name]
        return True


class GroupWatching:
    def __init__(self, client: KubeClient, cluster: str, known: KnownGroups, groups: CoordinatedGroups) -> None:
        self._client = client
        self._cluster = cluster
        self._known = known
        self._groups = groups
        self.on_change: Callable[[GroupName], None] = lambda _: None
        """The function that is called with every ConsumerGroup that has changed, or is gone ..."""
        self.on_list: Callable[[], None] = lambda: None
        """... and the function that is called when all of them may have changed."""

    async def run(self) -> None:
        """Watch until this is cancelled."""
        async with aclosing(watch(self._client, CONSUMER_GROUPS)) as events:
            async for event in events:
                match event:
                    case Listed(items, unreadable):
                        self._list(items, [GroupName(*key) for key in unreadable])
                    case Changed(item):
                        self._known.put(item)
                        self._take(item)
                        self.on_change(item.name)
                    case Removed(item):
                        self._remove(item)
                    case Unreadable(key, is_gone=True):
                        known = self._known.find(GroupName(*key))
                        if known is not None:
                            self._remove(known)

    async def keep_time(self) -> None:
        """Adjust pauses until cancelled: they end by the wall clock, which somebody may set; coordinators use
        another."""
        while True:
            await asyncio.sleep(GROUP_PAUSES_INTERVAL_MS / 1000)
            for resource in [*self._known.all()]:
                if resource.spec.paused_until_ms is not None:
                    self._configure(resource)

    def offer(self, group: GroupName) -> None:
        """Offer the target that the operator has published, and that was not committed yet, to a group here."""
        resource, coordinated = self._known.find(group), self._groups.find(group)
        if resource is None or coordinated is None or resource.spec.cluster != self._cluster:
            return
        with _about(group):
            offered = offered_of(resource)
            if offered is not None and offered.epoch > coordinated.image.group.assignment_epoch:
                self._groups.offer(group, offered)

    def _list(self, resources: Collection[ConsumerGroup], unreadable: Collection[GroupName]) -> None:
        for gone in self._known.list(resources, unreadable):
            self._drop(gone)
        for resource in resources:
            self._take(resource)
        self.on_list()

    def _take(self, resource: ConsumerGroup) -> None:
        self._configure(resource)
        self.offer(resource.name)

    def _remove(self, resource: ConsumerGroup) -> None:
        if self._known.remove(resource):
            self._drop(resource)
            self.on_change(resource.name)

    def _drop(self, resource: ConsumerGroup) -> None:
        if resource.spec.cluster == self._cluster:
            self._groups.configure(resource.name, None)

    def _configure(self, resource: ConsumerGroup) -> None:
        if resource.spec.cluster == self._cluster:
            with _about(resource.name):
                self._groups.configure(resource.name, resource.settings(monotonic_ms(), wall_ms()))


@contextmanager
def _about(group: GroupName) -> Iterator[None]:
    """Log a mistake of ours about one group: it must not end the watch of all."""
    try:
        yield
    except Exception:
        _log.exception("%s: its ConsumerGroup is not obeyed", group)


class _WriteBackoff(Backoff):
    """A backoff with long pauses after a refusal, which only people will change."""

    def __init__(self, is_long: bool) -> None:
        self.is_long = is_long
        if is_long:
            super().__init__(Random(), GROUP_REFUSED_MS_MIN, GROUP_REFUSED_MS_MAX)
        else:
            super().__init__(Random())


class WantedGroup(NamedTuple):
    until_ms: int
    """The time at which it is given up."""
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
        self._wanted: dict[GroupName, WantedGroup] = {}
        """The groups that nobody coordinates yet, and that have no ConsumerGroup: the oldest first."""
        self._unused: dict[GroupName, int] = {}
        """The times when a ConsumerGroup was first seen whose group nobody has ever joined."""
        self._backoffs: dict[GroupName, _WriteBackoff] = {}
        """The backoffs of the groups whose last write has failed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self.lag_of: Callable[[GroupName], SeenLag | None] = lambda _: None

    async def run(self) -> None:
        """Publish until this is cancelled. Writes on their way then are not waited for: they land, or do not."""
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
        """Note that a group may have to be shown anew, if it is coordinated here."""
        self._publishing.changed(group, monotonic_ms())
        self._news.set()

    def seen(self, group: GroupName) -> None:
        """Note that its ConsumerGroup has changed or is gone: what was refused may be allowed by now."""
        pauses = self._backoffs.get(group)
        if pauses is not None and pauses.is_long:
            del self._backoffs[group]
            self._publishing.release(group, monotonic_ms())
        self.changed(group)

    def lag_changed(self, group: GroupName) -> None:
        self._publishing.lag_changed(group, monotonic_ms())
        self._news.set()

    def wanted(self, group: GroupName, group_type: GroupType = GroupType.CONSUMER) -> None:
        """Note that a group has no coordinator: one comes with its ConsumerGroup."""
        now_ms = monotonic_ms()
        if not self._known.is_complete or self._known.find(group) or self._publishing.is_held(group, now_ms):
            return
        self._wanted.pop(group, None)
        if len(self._wanted) >= GROUPS_WANTED_MAX:
            oldest = next(iter(self._wanted))
            if self._wanted[oldest].until_ms > now_ms:
                return
            del self._wanted[oldest]
        self._wanted[group] = WantedGroup(now_ms + GROUP_WANTED_MS, group_type)
        self.changed(group)

    def changed_all(self) -> None:
        """Note a change of every group that is coordinated here, and of every ConsumerGroup of one that would be."""
        for group in self._groups.all():
            self.changed(group.image.name)
        for resource in self._known.all():
            if self._groups.coordinates(resource.name):
                self.changed(resource.name)

    def forget(self, groups: Collection[GroupName]) -> None:
        """Forget groups that another broker shows."""
        for group in groups:
            self._publishing.forget(group)
            self._unused.pop(group, None)
            self._backoffs.pop(group, None)

    def _look(self) -> int | None:
        """Start the writes of all groups whose turn it is; return when the next turn is."""
        now_ms = monotonic_ms()
        while (turn := self._publishing.take(now_ms)) is not None:
            try:
                action = self._action(turn, now_ms)
            except Exception as error:  # a mistake of ours about one group must not leave the others unshown
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

    def _report(self, group: GroupName, resource: ConsumerGroup | None) -> GroupReport:
        found, seen = self._groups.find(group), self.lag_of(group)
        image, state = (Image(group), GroupState.DEAD) if found is None else (found.image, found.state)
        lags = lags_shown(resource) if seen is None else seen.topics
        return report_of(image, state, self._me, self._groups.topics(group.namespace), lags)

    def _is_unused(self, group: GroupName, report: GroupReport, now_ms: int) -> bool:
        """Return whether the group has been dead for so long; if not, it is looked at again when that time is over."""
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
        except Exception as error:  # a mistake of ours must not leave the group without a writer
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
        # A ConsumerGroup that is to be created is not found where its namespace is missing.
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
            backoff = self._backoffs[group] = _WriteBackoff(is_refused)
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


class GroupReporting:
    """A `GroupsListener` for reports. Its events are handled later, by the tasks of `work`."""

    def __init__(
        self,
        me: BrokerId,
        client: KubeClient,
        view: ClusterView,
        groups: CoordinatedGroups,
        lags: GroupLags,
        registry: CollectorRegistry,
    ) -> None:
        self._groups = groups
        self._lags = lags
        known = KnownGroups()
        self._watching = GroupWatching(client, view.cluster, known, groups)
        self._publishing = GroupPublishing(me, view.cluster, client, known, groups, GroupWriteMetrics(registry))
        self._publishing.lag_of = lags.of
        self._watching.on_change = self._publishing.seen
        self._watching.on_list = self._publishing.changed_all
        self._lags.on_change = self._publishing.lag_changed
        self.listeners: tuple[GroupsListener, ...] = (self, GroupMetrics(registry, groups, lags.of))

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines, each to be run as a task until it is cancelled."""
        return [self._watching.run(), self._watching.keep_time(), self._publishing.run(), self._lags.run()]

    def wanted(self, group: GroupName, group_type: GroupType) -> None:
        self._publishing.wanted(group, group_type)

    def began(self, groups: Collection[GroupName], took_s: float) -> None:
        self._lags.look_soon()
        asyncio.get_running_loop().call_soon(self._begin, tuple(groups))

    def changed(self, group: GroupName) -> None:
        if self._groups.find(group) is None:
            self._lags.forget([group])
        elif self._lags.of(group) is None:
            self._lags.look_soon()
        self._publishing.changed(group)

    def ignored(self, group: GroupName, reason: str) -> None:
        _log.info("%s: what the operator has published is not taken: %s", group, reason)

    def committed(self, group: GroupName, offsets: int) -> None:
        """Tell nobody: the lag is looked at now and then."""

    def ended(self, groups: Collection[GroupName]) -> None:
        self._publishing.forget(groups)
        self._lags.forget(groups)

    def _begin(self, groups: Collection[GroupName]) -> None:
        """Show what is coordinated here now, which is more than it was."""
        for group in groups:
            self._watching.offer(group)
        self._publishing.changed_all()

"""What ConsumerGroups ask of this broker: settings for every group of the cluster, targets for those coordinated here.

One endless watch over all namespaces, through lost connections and an API server that is away: meanwhile everybody goes
on with what was seen last. `KnownGroups` also learns from the answers to this broker's own writes (`publishing`). Of a
ConsumerGroup that a watch shows late, an older state may come after a newer one: whatever is written because of that
meets a conflict, and is looked at again. One that cannot be read is as it was when it could be: neither gone nor
another. One of each per process; bounded by the ConsumerGroups that there are.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import aclosing, contextmanager

from headrace.core.groups.identity import GroupName
from headrace.core.groups.status import offered_of
from headrace.core.limits import GROUP_PAUSES_INTERVAL_MS
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.kube.client import KubeClient
from headrace.kube.resource import CONSUMER_GROUPS
from headrace.kube.watch import Changed, Listed, Removed, Unreadable, watch
from headrace_broker.clock import monotonic_ms, wall_ms
from headrace_broker.groups.ports import CoordinatedGroups

_log = logging.getLogger(__name__)


class KnownGroups:
    """ConsumerGroups as they were seen last, those of other clusters included: a name is taken by one of them."""

    def __init__(self) -> None:
        self.is_complete = False
        """Whether all of them were listed once."""
        self._resources: dict[GroupName, ConsumerGroup] = {}

    def find(self, group: GroupName) -> ConsumerGroup | None:
        return self._resources.get(group)

    def all(self) -> Collection[ConsumerGroup]:
        return self._resources.values()

    def list(self, resources: Iterable[ConsumerGroup], unreadable: Iterable[GroupName]) -> list[ConsumerGroup]:
        """These are all, and what was known of the `unreadable`. Those that are gone."""
        before = self._resources
        self._resources = {group: before[group] for group in unreadable if group in before}
        self._resources |= {resource.name: resource for resource in resources}
        self.is_complete = True
        return [resource for group, resource in before.items() if group not in self._resources]

    def put(self, resource: ConsumerGroup) -> None:
        self._resources[resource.name] = resource

    def remove(self, resource: ConsumerGroup) -> bool:
        """Whether it is gone now: under its name there may be another one."""
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
        """Called with every ConsumerGroup that is another one now, or gone ..."""
        self.on_list: Callable[[], None] = lambda: None
        """... and where all of them may be."""

    async def run(self) -> None:
        """For ever."""
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
        """For ever: pauses end by the clock on the wall, which somebody may set, and coordinators go by another one."""
        while True:
            await asyncio.sleep(GROUP_PAUSES_INTERVAL_MS / 1000)
            for resource in [*self._known.all()]:
                if resource.spec.paused_until_ms is not None:
                    self._configure(resource)

    def offer(self, group: GroupName) -> None:
        """Whatever the operator has published for a group that is coordinated here, and that was not committed yet."""
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
    """A mistake of our own about one group must not end the watch of all."""
    try:
        yield
    except Exception:
        _log.exception("%s: its ConsumerGroup is not obeyed", group)

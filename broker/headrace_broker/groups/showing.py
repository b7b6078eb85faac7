"""Shows the groups that this broker coordinates: in their ConsumerGroups, and to Prometheus. One per process."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any

from prometheus_client import CollectorRegistry

from headrace.core.groups.identity import GroupName, GroupType
from headrace.core.types import BrokerId
from headrace.kube.client import KubeClient
from headrace_broker.coordination.cluster_view import ClusterView
from headrace_broker.groups.lag import GroupLags
from headrace_broker.groups.metrics import GroupMetrics, GroupWriteMetrics
from headrace_broker.groups.ports import CoordinatedGroups, GroupsListener
from headrace_broker.groups.publishing import GroupPublishing
from headrace_broker.groups.watching import GroupWatching, KnownGroups

_log = logging.getLogger(__name__)


class Showing:
    """A `GroupsListener`. What it is told is done later, by the tasks of `work`."""

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
        """Each to be run as a task until it is cancelled."""
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
        """No reason to tell anybody: the lag is looked at now and then."""

    def ended(self, groups: Collection[GroupName]) -> None:
        self._publishing.forget(groups)
        self._lags.forget(groups)

    def _begin(self, groups: Collection[GroupName]) -> None:
        """What is coordinated here now, which is more than it was."""
        for group in groups:
            self._watching.offer(group)
        self._publishing.changed_all()

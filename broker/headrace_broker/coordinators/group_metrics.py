"""The metrics of groups, told by the broker that coordinates them alone: sums over brokers are right.

The state of a group (state, members, lag) is read when it is scraped; commits and rebalances are counted as they
happen, from when this broker began to coordinate the group. Its series go with the group. Bounded: of more groups than
GROUPS_IN_METRICS_MAX, and of more partitions than GROUP_LAG_SERIES_MAX, only how many there are is told.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.core.groups.group import Group
from headrace.core.groups.identity import NO_GROUP_EPOCH, GroupEpoch, GroupName, GroupState, GroupType
from headrace_broker.coordinators.group_coordinator import CoordinatedGroups
from headrace_broker.coordinators.group_lag import SeenLag
from headrace_broker.metrics import Registration

GROUPS_IN_METRICS_MAX = 2_000
GROUP_LAG_SERIES_MAX = 20_000
"""The groups of which a broker shows metrics, and the partitions of which it shows their lag; more are only counted."""


_GROUP = ("namespace", "group")
_PARTITION = (*_GROUP, "topic", "partition")
_LOADING_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STATES = tuple(state for state in GroupState if state is not GroupState.DEAD)


class GroupWriteMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Registration(registry).counter(
            "headrace_broker_group_writes",
            "Writes to ConsumerGroups, by outcome: landed, conflict (it is looked at again), failed (tried again).",
            "outcome",
            values=("landed", "conflict", "failed"),
        )


@dataclass(slots=True)
class _Counts:
    epoch: GroupEpoch = NO_GROUP_EPOCH
    """The greatest epoch that was seen."""
    rebalances: int = 0
    commits: int = 0
    offsets: int = 0


class GroupMetrics(Collector):
    """A `GroupsListener` that counts. One per process."""

    def __init__(
        self,
        registry: CollectorRegistry,
        groups: CoordinatedGroups,
        lag_of: Callable[[GroupName], SeenLag | None],
    ) -> None:
        self._groups = groups
        self._lag_of = lag_of
        self._counts: dict[GroupName, _Counts] = {}
        self._loading = Registration(registry).histogram(
            "headrace_coordinator_loading_seconds",
            "Time from an election until the groups of a partition are coordinated here: their log is read.",
            buckets=_LOADING_SECONDS,
        )
        registry.register(self)

    def wanted(self, group: GroupName, group_type: GroupType) -> None:
        """Ignore a group that has no coordinator."""

    def began(self, groups: Collection[GroupName], took_s: float) -> None:
        self._loading.observe(took_s)
        for group in groups:
            found = self._groups.find(group)
            self._counts[group] = _Counts(NO_GROUP_EPOCH if found is None else found.image.group.epoch)

    def changed(self, group: GroupName) -> None:
        found = self._groups.find(group)
        if found is None:
            self._counts.pop(group, None)
            return
        counts, epoch = self._counts_of(group), found.image.group.epoch
        counts.rebalances += epoch > counts.epoch
        counts.epoch = epoch

    def ignored(self, group: GroupName, reason: str) -> None:
        """Ignore the refusal: the operator hears of it from the group's status."""

    def committed(self, group: GroupName, offsets: int) -> None:
        counts = self._counts_of(group)
        counts.commits += 1
        counts.offsets += offsets

    def ended(self, groups: Collection[GroupName]) -> None:
        for group in groups:
            self._counts.pop(group, None)

    def collect(self) -> Iterator[Metric]:
        groups = self._groups.all()
        yield GaugeMetricFamily("headrace_groups", "Groups that this broker coordinates.", len(groups))
        shown = nsmallest(GROUPS_IN_METRICS_MAX, groups, key=lambda group: group.image.name)
        yield from self._of_groups(shown)
        yield from self._of_partitions(shown)

    def _counts_of(self, group: GroupName) -> _Counts:
        return self._counts.setdefault(group, _Counts())

    def _of_groups(self, groups: Iterable[Group]) -> Iterable[Metric]:
        state = GaugeMetricFamily("headrace_group_state", "1 for the state of the group.", None, (*_GROUP, "state"))
        members = GaugeMetricFamily("headrace_group_members", "Members of the group.", None, _GROUP)
        rebalances = CounterMetricFamily(
            "headrace_group_rebalances",
            "Changes of members, subscriptions, topics or settings for which partitions were assigned anew.",
            None,
            _GROUP,
        )
        commits = CounterMetricFamily("headrace_group_commits", "Commits that were taken.", None, _GROUP)
        offsets = CounterMetricFamily("headrace_group_offsets_committed", "Offsets in them.", None, _GROUP)
        for group in groups:
            name, counts = group.image.name, self._counts.get(group.image.name, _Counts())
            for each in _STATES:
                state.add_metric([*name, each.value], each is group.state)
            if group.image.group.type is GroupType.CONSUMER:  # nobody is to be alarmed that a query has none
                members.add_metric(name, len(group.image.members))
            rebalances.add_metric(name, counts.rebalances)
            commits.add_metric(name, counts.commits)
            offsets.add_metric(name, counts.offsets)
        return state, members, rebalances, commits, offsets

    def _of_partitions(self, groups: Iterable[Group]) -> Iterable[Metric]:
        lag = GaugeMetricFamily(
            "headrace_group_lag", "Readable records that the group has not committed.", None, _PARTITION
        )
        known = GaugeMetricFamily(
            "headrace_group_lag_known", "0 where the lag is not known, as when nobody leads.", None, _PARTITION
        )
        seen = [(group.image.name, self._lag_of(group.image.name) or SeenLag()) for group in groups]
        left_out = max(0, sum(len(each.partitions) for _, each in seen) - GROUP_LAG_SERIES_MAX)
        for labels, behind in islice(_lags(seen), GROUP_LAG_SERIES_MAX):
            known.add_metric(labels, behind is not None)
            if behind is not None:
                lag.add_metric(labels, behind)
        yield from (lag, known)
        yield GaugeMetricFamily(
            "headrace_group_lag_left_out", "Partitions of groups that are not among these series: too many.", left_out
        )


def _lags(groups: Iterable[tuple[GroupName, SeenLag]]) -> Iterator[tuple[list[str], int | None]]:
    for name, seen in groups:
        for partition, behind in seen.partitions.items():
            yield [*name, seen.names[partition.uid], str(partition.partition)], behind

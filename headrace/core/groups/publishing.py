"""The upkeep of ConsumerGroups of the groups that a broker coordinates: when to check each, what to write, how many may
be new.

    changed, lag_changed ──> due ── take ──> checked ──── nothing is to be written ──> (until the next change)
                              ^                  └─ began ──> on its way ── ended ──┘
                              └──────── hold, failed ────────────┘
    the group lives, there is no ConsumerGroup ──> create it    there is one with another status ──> WriteStatus
    it is dead, and a broker created its ConsumerGroup ──> delete it; one that a user made stays, and is empty

A group is checked when its turn comes, so that a hundred changes, or an hour without API server, cost one write of the
state at that time. Between two writes of one group lie GROUP_STATUS_INTERVAL_MS, for its lag alone
GROUP_LAG_STATUS_INTERVAL_MS; GROUP_WRITES_PER_SECOND_MAX and GROUP_WRITES_IN_FLIGHT_MAX bound all groups together.
Changes go before lags, but after GROUP_CHANGES_IN_A_ROW_MAX changes a lag is next; of either kind the one that has
waited longest. Bounded by the groups that the broker coordinates: `forget` the others.

A ConsumerGroup whose group is not there yet goes only if no member has joined by GROUP_UNUSED_MS. One that belongs to
another cluster, or is of another type than the group that lives, is left alone. `Newcomers` bounds how fast one client
may bring groups into being, each of which is an object of the cluster's API: GROUPS_NEW_BURST at once, then one every
GROUPS_NEW_INTERVAL_MS. Pure; one of each per broker.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from headrace.core.errors import ThrottledError
from headrace.core.groups.identity import GroupName, GroupState
from headrace.core.groups.status import GroupReport, reported
from headrace.core.holders import HolderRate
from headrace.core.resources.consumer_group import GROUP_FINALIZER, ConsumerGroup, ConsumerGroupStatus, auto_created
from headrace.core.resources.metadata import Metadata
from headrace.core.types import TopicUid

GROUP_STATUS_INTERVAL_MS = 1_000
"""The time between two writes of one broker to the status of the same ConsumerGroup ..."""
GROUP_LAG_STATUS_INTERVAL_MS = 10_000
"""... and the time where nothing but the lag is new."""
GROUP_WRITES_PER_SECOND_MAX = 20
"""The writes of one broker to all ConsumerGroups together ..."""
GROUP_LAG_WRITES_PER_SECOND_MAX = 5
"""... and those of them where nothing but the lag is new: with more than fifty such groups each is written less
often."""
GROUP_CHANGES_IN_A_ROW_MAX = 9
"""The number of changes after which a lag is next, however many changes wait."""
GROUP_WRITES_IN_FLIGHT_MAX = 8
GROUPS_NEW_BURST = 500
"""The groups that one client may create at once, at one broker ..."""
GROUPS_NEW_INTERVAL_MS = 1_000
"""... and the interval of one more: each is an object of the cluster's API."""
GROUPS_NEW_CLIENTS_MAX = 4_096
"""The number of clients for which a broker remembers that."""


_SECOND_MS = 1_000


class Turn(NamedTuple):
    group: GroupName
    is_for_lag: bool
    """True where it may be written if nothing but its lag is new."""


@dataclass(slots=True)
class _Group:
    changed_ms: int | None = None
    """The time since when something is to be shown; None: nothing is."""
    lag_changed_ms: int | None = None
    not_before_ms: int = 0
    lag_not_before_ms: int = 0
    is_for_lag: bool = False
    """True where its last turn came because of its lag."""
    is_on_its_way: bool = False
    is_forgotten: bool = False


class _Queue:
    """A queue of groups by when they are due, each once."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, GroupName]] = []
        """The entries; one whose time is not the group's is void."""
        self._due: dict[GroupName, int] = {}

    def set(self, group: GroupName, due_ms: int | None) -> None:
        """Set when a group is due; None: it is not."""
        if due_ms is None:
            self._due.pop(group, None)
        elif self._due.get(group) != due_ms:
            self._due[group] = due_ms
            heappush(self._heap, (due_ms, group))

    def first(self) -> tuple[int, GroupName] | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class _Rate:
    """A rate limit: no more than so many in any second."""

    def __init__(self, most: int) -> None:
        self._begun: deque[int] = deque(maxlen=most)
        """The times when the last ones began."""
        self._most = most

    def note(self, now_ms: int) -> None:
        self._begun.append(now_ms)

    @property
    def free_ms(self) -> int:
        """Return from when on there is room for one more."""
        return self._begun[0] + _SECOND_MS if len(self._begun) == self._most else 0


class Publishing:
    def __init__(self) -> None:
        self._groups: dict[GroupName, _Group] = {}
        self._changes = _Queue()
        self._lags = _Queue()
        self._writes = _Rate(GROUP_WRITES_PER_SECOND_MAX)
        self._lag_writes = _Rate(GROUP_LAG_WRITES_PER_SECOND_MAX)
        self._changes_in_a_row = 0
        self._on_their_way = 0

    def changed(self, group: GroupName, now_ms: int) -> None:
        """Note that something of the group is to be shown."""
        known = self._known(group)
        known.changed_ms = now_ms if known.changed_ms is None else known.changed_ms
        self._queue_up(group)

    def lag_changed(self, group: GroupName, now_ms: int) -> None:
        known = self._known(group)
        known.lag_changed_ms = now_ms if known.lag_changed_ms is None else known.lag_changed_ms
        self._queue_up(group)

    def hold(self, group: GroupName, until_ms: int) -> None:
        """Check the group again at that time, not before."""
        known = self._known(group)
        known.changed_ms, known.not_before_ms = until_ms, max(known.not_before_ms, until_ms)
        self._queue_up(group)

    def is_held(self, group: GroupName, now_ms: int) -> bool:
        known = self._groups.get(group)
        return known is not None and known.not_before_ms > now_ms

    def release(self, group: GroupName, now_ms: int) -> None:
        """Stop holding the group."""
        self._known(group).not_before_ms = now_ms
        self._queue_up(group)

    def asked(self, now_ms: int) -> None:
        """Note that the API server was asked for a group: that counts among the writes of this second."""
        self._writes.note(now_ms)

    def forget(self, group: GroupName) -> None:
        """Forget a group that another broker shows; a write that is on its way still counts until it has ended."""
        known = self._groups.get(group)
        if known is None:
            return
        known.changed_ms = known.lag_changed_ms = None
        self._queue_up(group)
        if known.is_on_its_way:
            known.is_forgotten = True
        else:
            del self._groups[group]

    def take(self, now_ms: int) -> Turn | None:
        """Return whose turn it is; the caller reports at once what is done about it: `began`, or nothing."""
        if self._on_their_way >= GROUP_WRITES_IN_FLIGHT_MAX or self._writes.free_ms > now_ms:
            return None
        change, lag = self._due(self._changes, now_ms), self._due(self._lags, now_ms)
        if self._lag_writes.free_ms > now_ms:
            lag = None
        is_lags_turn = lag is not None and (change is None or self._changes_in_a_row >= GROUP_CHANGES_IN_A_ROW_MAX)
        group = lag if is_lags_turn else change
        if group is None:
            return None
        self._changes_in_a_row = 0 if is_lags_turn else self._changes_in_a_row + 1
        return self._turn(group, now_ms)

    def began(self, group: GroupName, now_ms: int) -> None:
        """Note that all that is to be shown of it is on its way."""
        known = self._known(group)
        known.is_on_its_way, known.lag_changed_ms = True, None
        known.not_before_ms = now_ms + GROUP_STATUS_INTERVAL_MS
        known.lag_not_before_ms = now_ms + GROUP_LAG_STATUS_INTERVAL_MS
        self._queue_up(group)
        self._writes.note(now_ms)
        if known.is_for_lag:
            self._lag_writes.note(now_ms)
        self._on_their_way += 1

    def ended(self, group: GroupName) -> None:
        """Note that the write landed, or did not."""
        known = self._groups[group]
        assert known.is_on_its_way, "it began first"
        known.is_on_its_way = False
        self._on_their_way -= 1
        if known.is_forgotten:
            del self._groups[group]
        else:
            self._queue_up(group)

    def next_ms(self) -> int | None:
        """Return when there may be a turn to take; None: not before something else happens."""
        change, lag = self._changes.first(), self._lags.first()
        if self._on_their_way >= GROUP_WRITES_IN_FLIGHT_MAX or (change is None and lag is None):
            return None
        due_ms = [] if change is None else [change[0]]
        due_ms += [] if lag is None else [max(lag[0], self._lag_writes.free_ms)]
        return max(self._writes.free_ms, min(due_ms))

    def _known(self, group: GroupName) -> _Group:
        known = self._groups.setdefault(group, _Group())
        known.is_forgotten = False
        return known

    def _due(self, queue: _Queue, now_ms: int) -> GroupName | None:
        first = queue.first()
        return first[1] if first is not None and first[0] <= now_ms else None

    def _turn(self, group: GroupName, now_ms: int) -> Turn:
        """Return the group's turn, with its lag where it may come along."""
        known = self._groups[group]
        is_change = known.changed_ms is not None and max(known.changed_ms, known.not_before_ms) <= now_ms
        is_for_lag = known.lag_changed_ms is not None and known.lag_not_before_ms <= now_ms
        known.changed_ms = None if is_change else known.changed_ms
        known.lag_changed_ms = None if is_for_lag else known.lag_changed_ms
        known.is_for_lag = is_for_lag and not is_change
        self._queue_up(group)
        return Turn(group, is_for_lag)

    def _queue_up(self, group: GroupName) -> None:
        known = self._groups[group]
        changed_ms, lag_ms = known.changed_ms, known.lag_changed_ms
        if known.is_on_its_way:
            changed_ms = lag_ms = None
        self._changes.set(group, None if changed_ms is None else max(changed_ms, known.not_before_ms))
        lag_not_before_ms = max(known.not_before_ms, known.lag_not_before_ms)
        self._lags.set(group, None if lag_ms is None else max(lag_ms, lag_not_before_ms))


@dataclass(frozen=True, slots=True)
class CreateConsumerGroup:
    manifest: Mapping[str, Any]
    reason: str = "it has none"


@dataclass(frozen=True, slots=True)
class WriteStatus:
    resource: ConsumerGroup
    """The resource with the version that it is based on."""
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteConsumerGroup:
    """The deletion of a ConsumerGroup that must not be held any more: an operator that comes late would delete the
    offsets of members that join again."""

    metadata: Metadata
    reason: str

    @property
    def release(self) -> dict[str, Any] | None:
        """Return a merge patch that comes first, on the version that was read; None where it is not held."""
        if GROUP_FINALIZER not in self.metadata.finalizers:
            return None
        others = [each for each in self.metadata.finalizers if each != GROUP_FINALIZER]
        return {"metadata": {"resourceVersion": self.metadata.resource_version, "finalizers": others}}


Upkeep: TypeAlias = CreateConsumerGroup | WriteStatus | DeleteConsumerGroup


def upkeep(
    resource: ConsumerGroup | None,
    report: GroupReport,
    cluster: str,
    wall_ms: int,
    *,
    is_for_lag: bool,
    is_unused: bool,
) -> Upkeep | None:
    """Return what to do; `is_for_lag`: it is time to show the lag. `is_unused`: there was time enough for a member to
    join."""
    is_dead = report.state is GroupState.DEAD
    if resource is None:
        return (
            None if is_dead else CreateConsumerGroup(auto_created(report.group, cluster, report.retention, report.type))
        )
    if resource.spec.cluster != cluster or not (is_dead or resource.spec.type is report.type):
        return None
    if is_dead and resource.auto_created:
        if resource.deleting or not (is_unused or was_shown(resource)):
            return None
        return DeleteConsumerGroup(
            resource.metadata, "the group is forgotten" if was_shown(resource) else "nobody has joined"
        )
    return _status(resource, reported(resource, report, wall_ms), is_for_lag=is_for_lag)


def was_shown(resource: ConsumerGroup) -> bool:
    """Return whether a coordinator has ever written its status."""
    return resource.status.state is not None


def lags_shown(resource: ConsumerGroup | None) -> dict[TopicUid, int | None]:
    """Return the lags of its status: the best that is known until a new coordinator has measured them."""
    return {} if resource is None else {topic.uid: topic.lag for topic in resource.status.topics}


def _status(before: ConsumerGroup, after: ConsumerGroup, *, is_for_lag: bool) -> WriteStatus | None:
    if before.status == after.status:
        return None
    if _without_lags(before.status) != _without_lags(after.status):
        return WriteStatus(after, "the group changed")
    return WriteStatus(after, "its lag changed") if is_for_lag else None


def _without_lags(status: ConsumerGroupStatus) -> ConsumerGroupStatus:
    return replace(status, topics=tuple(topic._replace(lag=None) for topic in status.topics))


class Newcomers:
    def __init__(self, burst: int = GROUPS_NEW_BURST, interval_ms: int = GROUPS_NEW_INTERVAL_MS) -> None:
        self._burst = burst
        self._rate = HolderRate(burst, interval_ms, GROUPS_NEW_CLIENTS_MAX)

    def __len__(self) -> int:
        """Return the number of clients of whom anything is remembered."""
        return len(self._rate)

    def take(self, holder: str | None, now_ms: int) -> None:
        """Count one more new group of this client's. Raises ThrottledError."""
        wait_ms = self._rate.wait_ms(holder, now_ms)
        if wait_ms > 0:
            raise ThrottledError(
                f"{holder} has made {self._burst} new groups in a row; the next is taken in {wait_ms / 1000:.1f} s:"
                " use groups that there are, or create ConsumerGroups",
                retryAfterMs=round(wait_ms),
            )
        self._rate.take(holder, now_ms)

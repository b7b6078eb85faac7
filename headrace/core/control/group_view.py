"""The planner's view of consumer groups, and the choice of groups that need no check or must wait.

- `GroupView`: the groups as their watch shows them, and the rest as the last pass of the reconcile loop has read it.
- `GroupResting`: a group rests if nothing was to be done about it, and it, and all that was checked, is as it was. So
  with a thousand groups, of which one changes all the time, a pass costs one. Forgetting everything is always right.
- `GroupPatience`: a group whose last writes have failed (its status is too large for the API server, a webhook is away
  for its namespace) must block no other group: it has pauses of its own, which double with every failure in a row up to
  PAUSE_MS_MAX and end with a write that lands. A conflict is no failure by itself.

No I/O; one `GroupResting` and one `GroupPatience` per operator process, used in its event loop.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.core.control.conditions import named_brokers
from headrace.core.control.group_errands import ErrandVerdict, Wish
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.groups.identity import OFFSETS_TOPIC, TopicShape, coordinator_partition
from headrace.core.limits import OFFSETS_PARTITIONS, RECONCILE_INTERVAL_MS_MIN, RECONCILE_RESYNC_MS
from headrace.core.resources.consumer_group import ConsumerGroup
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, PartitionId

_LOST = (
    f"topic {OFFSETS_TOPIC}, or what tells of it, cannot be read or is being deleted: mend what the operator's log"
    " names as left out"
)
Shapes = Mapping[str, Mapping[str, TopicShape]]
"""The topics by namespace and name."""
PAUSE_MS_MAX: Final = RECONCILE_RESYNC_MS
_DOUBLINGS_MAX: Final = (PAUSE_MS_MAX // RECONCILE_INTERVAL_MS_MIN).bit_length()


def coordinated_in(groups: Iterable[ConsumerGroup], cluster: str) -> list[ConsumerGroup]:
    """Return the groups that have offsets in the internal topic of this cluster, or may have."""
    return [each for each in groups if each.spec.cluster == cluster]


@dataclass(frozen=True, slots=True)
class GroupView:
    groups: Sequence[ConsumerGroup]
    """The groups of all clusters."""
    topics: Sequence[Topic]
    """The topics of all clusters."""
    observed: Observed
    home: str
    """The namespace of the internal topic."""
    settled: bool = True
    """True where the reconcile loop had nothing to do about what it saw: a partition that is offline now has no better
    leader."""
    resting: Collection[str] = ()
    """The uids of groups that need no check."""
    waited: Collection[str] = ()
    """The uids of groups whose turn did not come in the last pass."""
    is_whole: bool = True
    """True where everything that is there could be read."""

    @property
    def ours(self) -> list[ConsumerGroup]:
        return [group for group in self.groups if group.spec.cluster == self.observed.cluster]

    @property
    def coordinated(self) -> list[ConsumerGroup]:
        """Return the groups that need the internal topic."""
        return coordinated_in(self.groups, self.observed.cluster)

    @property
    def offsets_topic(self) -> Topic | None:
        """Return the topic of that name, of whatever cluster."""
        named = (topic for topic in self.topics if topic.full_name == (self.home, OFFSETS_TOPIC))
        return next(named, None)

    def shapes(self) -> Shapes:
        """Return what groups may read: the topics of this cluster."""
        found: dict[str, dict[str, TopicShape]] = defaultdict(dict)
        for topic in self.topics:
            if topic.spec.cluster == self.observed.cluster:
                shape = TopicShape(topic.uid, topic.spec.partitions)
                found[topic.metadata.namespace][topic.metadata.name] = shape
        return found


@dataclass(frozen=True, slots=True)
class Coordinators:
    """The leaders of the internal topic's partitions, made for one pass."""

    partitions: int
    replicas: Mapping[PartitionId, tuple[BrokerId, ...]]
    led: Collection[PartitionId]
    missing: str = ""
    """The reason why there is no topic that this cluster can use; empty where there is."""
    may_be_kept: bool = True
    """True where brokers may have data of a group: not where the topic was never made."""

    @classmethod
    def of(cls, view: GroupView) -> "Coordinators":
        topic = view.offsets_topic
        if topic is None or topic.spec.cluster != view.observed.cluster:
            lost = topic is None and (not view.is_whole or _is_placed(view))
            return cls(OFFSETS_PARTITIONS, {}, (), _LOST if lost else _missing(topic, view), may_be_kept=lost)
        sets = (each for each in view.observed.sets if each.topic_uid == topic.uid)
        states = {state.id: state for each in sets for state in each.partitions}
        led = frozenset(state.id for state in states.values() if view.observed.holds(state.leader))
        # Somebody may have made the topic before, with fewer partitions; of more, only so many count.
        replicas = {state.id: state.replicas for state in states.values()}
        return cls(min(topic.spec.partitions, OFFSETS_PARTITIONS), replicas, led)

    @property
    def are_complete(self) -> bool:
        """Return whether no group of this cluster is without one."""
        return len(self.led) >= self.partitions

    def trouble(self, group: ConsumerGroup) -> str:
        """Return why the group has no coordinator, and what to do; empty where it has one."""
        if self.missing:
            return self.missing
        partition = coordinator_partition(group.name, self.partitions)
        if partition in self.led:
            return ""
        replicas = self.replicas.get(partition)
        if replicas is None:
            return f"{OFFSETS_TOPIC}/{partition} stands on no broker yet: the conditions of that topic say why"
        brokers = named_brokers(replicas)
        return f"{OFFSETS_TOPIC}/{partition} has no live leader: its replicas are on {brokers}, start them"


def _is_placed(view: GroupView) -> bool:
    """Return whether PartitionSets of the internal topic are left."""
    return any(each.metadata.namespace == view.home and each.topic == OFFSETS_TOPIC for each in view.observed.sets)


def _missing(topic: Topic | None, view: GroupView) -> str:
    if topic is not None:
        return (
            f"topic {view.home}/{OFFSETS_TOPIC} belongs to cluster {topic.spec.cluster}, and this one needs its own:"
            " delete that topic, or run the two clusters in different namespaces"
        )
    if not view.observed.in_state(BrokerState.READY):
        return f"{OFFSETS_TOPIC} cannot be made before a broker is ready: start one"
    return f"{OFFSETS_TOPIC} is about to be made"


@dataclass(slots=True)
class _Failing:
    failures: int = 0
    until_ms: int = 0
    is_stuck: bool = False
    """True where it was more than a conflict."""


class GroupPatience:
    def __init__(self) -> None:
        self._failing: dict[str, _Failing] = {}
        """The failures by the uid of the group."""

    def held(self, uids: Collection[str], now_ms: int) -> frozenset[str]:
        """Return the groups to leave alone now. `uids` are all groups that there are: others are forgotten, and old
        failures too."""
        self._failing = {
            uid: failing
            for uid, failing in self._failing.items()
            if uid in uids and failing.until_ms + PAUSE_MS_MAX > now_ms
        }
        return frozenset(uid for uid, failing in self._failing.items() if failing.until_ms > now_ms)

    def landed(self, uid: str) -> None:
        self._failing.pop(uid, None)

    def overtaken(self, uid: str, now_ms: int) -> None:
        """Note that another writer has changed it meanwhile."""
        failing = self._failing.setdefault(uid, _Failing())
        failing.until_ms = now_ms + _pause_ms(failing.failures)
        failing.failures += 1

    def failed(self, uid: str, now_ms: int) -> None:
        """Note that the API server could not write it."""
        failing = self._failing.setdefault(uid, _Failing())
        failing.failures += 1
        failing.until_ms = now_ms + _pause_ms(failing.failures)
        failing.is_stuck = True

    def refused(self, uid: str, now_ms: int) -> None:
        """Note that the API server will not write it, unless something changes."""
        self._failing[uid] = _Failing(_DOUBLINGS_MAX, now_ms + PAUSE_MS_MAX, is_stuck=True)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the next pause ends."""
        return min((each.until_ms for each in self._failing.values() if each.until_ms > now_ms), default=None)

    @property
    def stuck(self) -> int:
        """Return the number of groups that cannot be written."""
        return sum(failing.is_stuck for failing in self._failing.values())


def _pause_ms(failures: int) -> int:
    doubled = (1 << min(failures, _DOUBLINGS_MAX)) - 1
    return min(doubled * RECONCILE_INTERVAL_MS_MIN, PAUSE_MS_MAX)


class _Seen(NamedTuple):
    group: ConsumerGroup
    verdict: ErrandVerdict | None


class GroupResting:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        """The groups by uid for which nothing was to be done."""
        self._looked_at: tuple[object, ...] = ()
        """The picture, and ..."""
        self._around: tuple[object, ...] = ()
        """... the part of it that plans depend on: most pictures are the same in this."""

    def among(self, view: GroupView, verdicts: Mapping[Wish, ErrandVerdict]) -> frozenset[str]:
        """Return the uids of the groups that rest."""
        self._look_around(view)
        said = {wish.group: verdict for wish, verdict in verdicts.items()}
        return frozenset(
            uid
            for group in view.groups
            if (seen := self._seen.get(uid := group.metadata.uid)) is not None
            and seen.group is group
            and seen.verdict is said.get(uid)
        )

    def _look_around(self, view: GroupView) -> None:
        looked_at = (view.topics, view.observed, view.settled, view.is_whole)
        if self._looked_at and all(a is b for a, b in zip(looked_at, self._looked_at, strict=True)):
            return
        coordinators = Coordinators.of(view)
        # It matters only for groups without a coordinator whether the state is settled.
        around = (view.shapes(), coordinators, view.settled or coordinators.are_complete)
        if around != self._around:
            self._seen = {}
        self._looked_at, self._around = looked_at, around

    def settle(self, view: GroupView, verdicts: Mapping[Wish, ErrandVerdict], planned: Collection[str]) -> None:
        """Note the groups of `view` that rest: all but `planned`, which have something to be done."""
        said = {wish.group: verdict for wish, verdict in verdicts.items()}
        self._seen = {
            group.metadata.uid: _Seen(group, said.get(group.metadata.uid))
            for group in view.groups
            if group.metadata.uid not in planned and group.spec.paused_until_ms is None
        }

"""The input of the planner: one consistent picture of sets, brokers and waits, built by the operator for each pass."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.control.broker_reports import BrokerReport, Promises
from headrace.core.control.liveness import Liveness
from headrace.core.limits import FINALIZER_WAIT_MS
from headrace.core.resources.kubernetes_objects import BrokerSet
from headrace.core.resources.lease import BrokerLease
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Topic
from headrace.core.types import BrokerId, Incarnation, PartitionKey, Seat, TopicUid

LEADER_RETURN_DELAY_MS = 5_000
"""The time for which a broker must have been ready, in one life, before leaderships return to it or data moves
there."""


class BrokerState(StrEnum):
    READY = "Ready"
    UNPROVEN = "Unproven"
    """The state of a broker whose Lease has not run out, but has not changed either since this operator observes: it is
    not known yet whether it lives. Nothing new is placed meanwhile, and nothing new is reported about what it holds."""
    DRAINING = "Draining"
    LOST = "Lost"


@dataclass(frozen=True, slots=True)
class Broker:
    id: BrokerId
    incarnation: Incarnation
    zone: str
    state: BrokerState
    url: str = ""
    full: bool = False
    """True where its disk has no room for records."""
    regressed: frozenset[TopicUid] = frozenset()
    """The topics of which it knows higher epochs than the API."""
    clean: bool = False
    """True where it has stopped cleanly; it is lost all the same until it is started again."""

    @property
    def seat(self) -> Seat:
        return Seat(self.id, self.incarnation)

    @classmethod
    def of(cls, lease: BrokerLease, liveness: Liveness, now_ms: int) -> "Broker":
        """Return the broker of a Lease, which `liveness` has seen; `now_ms` is its clock."""
        state = _state(lease, liveness, now_ms)
        about = (lease.url, lease.full, lease.regressed, lease.clean)
        return cls(lease.broker, lease.incarnation, lease.zone, state, *about)


def _state(lease: BrokerLease, liveness: Liveness, now_ms: int) -> BrokerState:
    if lease.incarnation == 0 or lease.clean or not liveness.is_live(lease.broker, now_ms):
        return BrokerState.LOST
    if not liveness.is_proven(lease.broker):
        return BrokerState.UNPROVEN
    return BrokerState.DRAINING if lease.draining else BrokerState.READY


@dataclass(frozen=True, slots=True)
class Observed:
    cluster: str
    """The operator's own cluster: it leaves topics of other clusters alone."""
    sets: tuple[PartitionSet, ...]
    brokers: Mapping[BrokerId, Broker]
    overdue: frozenset[TopicUid] = frozenset()
    """The deleted topics whose brokers have had their time."""
    steady: frozenset[BrokerId] = frozenset()
    """The brokers that have been ready for so long that leaderships may return to them, and data move there for
    balance."""
    leaving: frozenset[BrokerId] = frozenset()
    """The brokers that go for good: their ordinal is not below the StatefulSet's `replicas` any more."""
    regressed: frozenset[TopicUid] = frozenset()
    """The topics of which a broker knows higher epochs than the API: nothing is decided until `cluster recover`."""
    promises: Mapping[BrokerId, Promises] = field(default_factory=dict)
    """The latest answers of brokers about partitions that no member of the ISR can lead."""
    reports: Mapping[BrokerId, BrokerReport] = field(default_factory=dict)
    """The latest answers of brokers about the topics in `asked`."""
    asked: Collection[TopicUid] = ()
    """The topics for which every live broker was asked what it holds."""
    unreadable: Collection[BrokerId] = ()
    """The brokers whose Leases are there and cannot be read: it is not known where they are, and whether they live."""
    expected: Collection[BrokerId] = ()
    """The brokers that the StatefulSet asks for; none where there is no such object."""
    silent: Mapping[PartitionKey, Collection[BrokerId]] = field(default_factory=dict)
    """The brokers that have not answered for such a partition when they were last asked."""

    def tends(self, topic: Topic) -> bool:
        """Return whether anything is decided about it now."""
        ours = topic.spec.cluster == self.cluster and topic.uid not in self.regressed
        return ours and not topic.paused and not topic.is_going

    def is_full(self, broker: BrokerId) -> bool:
        found = self.brokers.get(broker)
        return found is not None and found.full

    def holds(self, seat: Seat | None) -> bool:
        """Return whether `seat` is of a live broker in its present life."""
        broker = self.brokers.get(seat.broker) if seat is not None else None
        if seat is None or broker is None or broker.state is BrokerState.LOST:
            return False
        return broker.incarnation == seat.incarnation

    def state_of(self, broker: BrokerId) -> BrokerState:
        """Return the broker's state; one that has no Lease was never seen: it is lost."""
        found = self.brokers.get(broker)
        return found.state if found is not None else BrokerState.LOST

    def serves(self, seat: Seat | None) -> bool:
        """Return whether `seat` is held by a broker that has proved to be alive: nothing is decided on a mere Lease."""
        return seat is not None and self.holds(seat) and self.state_of(seat.broker) is not BrokerState.UNPROVEN

    def was_never_seen(self, broker: BrokerId) -> bool:
        """Return whether there is no such broker, and none to come: Leases stay for ever, and the StatefulSet does not
        ask for it."""
        return not any(broker in known for known in (self.brokers, self.unreadable, self.expected))

    def is_open_to(self, broker: BrokerId) -> bool:
        """Return whether a broker may be given replicas."""
        return self.state_of(broker) is BrokerState.READY and broker not in self.leaving

    def knows_holders_of(self, state: PartitionState) -> bool:
        """Return whether it is known of every broker in the partition's ISR that it is alive, or that it is not."""
        brokers = (self.brokers.get(seat.broker) for seat in state.isr)
        return not any(broker is not None and broker.state is BrokerState.UNPROVEN for broker in brokers)

    def in_state(self, *states: BrokerState) -> list[Broker]:
        return [broker for _, broker in sorted(self.brokers.items()) if broker.state in states]


def leaving_of(brokers: Iterable[BrokerId], broker_set: BrokerSet | None) -> frozenset[BrokerId]:
    """Return the brokers that the StatefulSet asks for no longer; none where there is no such object."""
    return frozenset(broker for broker in brokers if broker_set is not None and not broker_set.asks_for(broker))


def regressed_of(brokers: Iterable[Broker]) -> frozenset[TopicUid]:
    """Return what live brokers report of topics: one that is away may not know of a recovery."""
    living = (broker for broker in brokers if broker.state is not BrokerState.LOST)
    return frozenset(uid for broker in living for uid in broker.regressed)


class SteadyTimers:
    """The times for which brokers have been ready without a break, in one life: leaders do not follow a broker that
    flaps."""

    def __init__(self, delay_ms: int = LEADER_RETURN_DELAY_MS) -> None:
        self._delay_ms = delay_ms
        self._due_ms: dict[Seat, int] = {}

    def observe(self, brokers: Iterable[Broker], now_ms: int) -> frozenset[BrokerId]:
        """Observe all brokers as they are just now, and return those that are steady."""
        ready = (broker.seat for broker in brokers if broker.state is BrokerState.READY)
        self._due_ms = {seat: self._due_ms.get(seat, now_ms + self._delay_ms) for seat in ready}
        return frozenset(seat.broker for seat, due_ms in self._due_ms.items() if due_ms <= now_ms)

    def next_due_ms(self, now_ms: int) -> int | None:
        return min((due_ms for due_ms in self._due_ms.values() if due_ms > now_ms), default=None)


class DeletionTimers:
    """The times for which deleted topics have waited for their brokers: by the operator's own clock since it first saw
    it."""

    def __init__(self, wait_ms: int = FINALIZER_WAIT_MS) -> None:
        self._wait_ms = wait_ms
        self._due_ms: dict[TopicUid, int] = {}

    def observe(self, deleted: Iterable[TopicUid], now_ms: int) -> frozenset[TopicUid]:
        """Observe all topics that have a deletionTimestamp just now, and return those that have waited long enough."""
        self._due_ms = {uid: self._due_ms.get(uid, now_ms + self._wait_ms) for uid in deleted}
        return frozenset(uid for uid, due_ms in self._due_ms.items() if due_ms <= now_ms)

    def next_due_ms(self, now_ms: int) -> int | None:
        return min((due_ms for due_ms in self._due_ms.values() if due_ms > now_ms), default=None)

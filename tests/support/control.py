"""Topics, brokers and an API server in memory for tests of the planner."""

from dataclasses import dataclass, field, replace
from typing import Any, assert_never

from headrace.core.control.actions import (
    Action,
    CreateSet,
    DeleteOrphanSet,
    DeleteSet,
    PatchStatus,
    ReplaceSet,
    SetFinalizers,
)
from headrace.core.control.broker_reports import BrokerReport, Epochs, HeldLog
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.control.plan import plan
from headrace.core.control.reclaiming import inquiries
from headrace.core.resources.metadata import Metadata
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.resources.topic import Topic, TopicSpec
from headrace.core.types import BrokerId, Incarnation, PartitionKey, TopicUid

NOW_MS = 1_795_251_600_000
PENDING = {
    "observedGeneration": 0,
    "conditions": [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "Pending",
            "message": "waiting for the operator",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ],
}
"""A new Topic's status: the CRD's default."""
_PASSES_MAX = 20


def topic(name: str = "flights", *, metadata: dict[str, Any] | None = None, **spec: Any) -> Topic:
    """In namespace default, with one replica; `metadata` are members of it beyond the usual."""
    fields: dict[str, Any] = {"uid": f"uid-{name}", "resource_version": "1", "generation": 1, **(metadata or {})}
    parsed = TopicSpec.parse({"partitions": 6, "replicas": 1, **spec})
    return Topic(Metadata(name, "default", **fields), parsed, dict(PENDING))


def broker(number: int, *, state: BrokerState = BrokerState.READY, incarnation: int = 1, zone: str = "") -> Broker:
    return Broker(BrokerId(number), Incarnation(incarnation), zone, state)


def brokers(count: int) -> list[Broker]:
    return [broker(number) for number in range(count)]


@dataclass(slots=True, repr=False)
class ModelApi:
    """Carries actions out as an API server would, one writer, no conflicts. Fails where an action makes no sense."""

    topics: dict[TopicUid, Topic]
    brokers: dict[BrokerId, Broker]
    sets: dict[str, PartitionSet] = field(default_factory=dict)
    overdue: frozenset[TopicUid] = frozenset()
    writes: int = 0
    steady: frozenset[BrokerId] | None = None
    """None: whoever is ready is steady."""
    leaving: frozenset[BrokerId] = frozenset()
    regressed: frozenset[TopicUid] = frozenset()
    held: dict[BrokerId, dict[PartitionKey, HeldLog]] = field(default_factory=dict)
    """What brokers report; whoever is not lost does."""
    unreadable: frozenset[BrokerId] = frozenset()
    expected: frozenset[BrokerId] = frozenset()
    known: dict[PartitionKey, Epochs] = field(default_factory=dict)
    """What all of them know."""

    def __repr__(self) -> str:
        """Short: a thousand partitions are of no help to whoever reads a counter-example."""
        topics = [
            (t.uid, t.spec.partitions, t.spec.replicas, t.metadata.deletion_timestamp) for t in self.topics.values()
        ]
        sets = {name: (s.topic_uid, len(s.partitions), s.deleting) for name, s in self.sets.items()}
        return f"ModelApi({topics=}, brokers={list(self.brokers.values())}, {sets=}, overdue={set(self.overdue)})"

    @classmethod
    def of(cls, topics: list[Topic], brokers: list[Broker]) -> "ModelApi":
        return cls({t.uid: t for t in topics}, {b.id: b for b in brokers})

    def copy(self) -> "ModelApi":
        return replace(self, topics=dict(self.topics), brokers=dict(self.brokers), sets=dict(self.sets))

    @property
    def observed(self) -> Observed:
        ready = frozenset(b.id for b in self.brokers.values() if b.state is BrokerState.READY)
        observed = Observed(
            "headrace",
            tuple(self.sets.values()),
            self.brokers,
            self.overdue,
            steady=ready if self.steady is None else self.steady,
            leaving=self.leaving,
            regressed=self.regressed,
            reports={
                b.id: BrokerReport(b.seat, self.known, self.held.get(b.id, {}))
                for b in self.brokers.values()
                if b.state is not BrokerState.LOST
            },
            unreadable=self.unreadable,
            expected=self.expected,
        )
        return replace(observed, asked=inquiries([*self.topics.values()], observed))

    def plan(self, now_ms: int = NOW_MS) -> list[Action]:
        plans = plan(tuple(self.topics.values()), self.observed, now_ms)
        return [action for topic_plan in plans for action in topic_plan.actions]

    def settle(self) -> None:
        """Plan and carry out until there is nothing to do."""
        for _ in range(_PASSES_MAX):
            actions = self.plan()
            if not actions:
                return
            for action in actions:
                self.carry_out(action)
        raise AssertionError(f"still something to do after {_PASSES_MAX} passes: {actions}")

    def carry_out(self, action: Action) -> None:
        self.writes += 1
        match action:
            case CreateSet():
                name = action.set.metadata.name
                assert name not in self.sets, f"{name} is there already"
                metadata = replace(action.set.metadata, uid=f"uid-{name}-{self.writes}", resource_version="1")
                self.sets[name] = replace(action.set, metadata=metadata)
            case ReplaceSet():
                assert action.set.metadata.uid == self.sets[action.set.metadata.name].metadata.uid
                self.sets[action.set.metadata.name] = action.set
            case DeleteSet() | DeleteOrphanSet():
                del self.sets[action.set.metadata.name]
            case SetFinalizers():
                found = self.topics[action.topic.uid]
                notes = {**found.metadata.annotations, **action.annotations}
                metadata = replace(found.metadata, finalizers=action.finalizers, annotations=notes)
                self.topics[found.uid] = replace(found, metadata=metadata)
                self.collect(found.uid)
            case PatchStatus():
                found = self.topics[action.topic.uid]
                self.topics[found.uid] = replace(found, status={**found.status, **action.status})
            case _:
                assert_never(action)

    def change(self, uid: str, *, spec: dict[str, Any] | None = None, **metadata: Any) -> None:
        """What a user does to a topic; a change of the spec raises the generation."""
        found = self.topics[TopicUid(uid)]
        if spec:
            metadata["generation"] = found.metadata.generation + 1
        self.topics[found.uid] = replace(
            found, spec=replace(found.spec, **(spec or {})), metadata=replace(found.metadata, **metadata)
        )

    def delete_topic(self, uid: str) -> None:
        """As the API server: gone at once without finalizers, else marked."""
        self.change(uid, deletion_timestamp="2026-11-21T09:00:00Z")
        self.collect(TopicUid(uid))

    def collect(self, uid: TopicUid) -> None:
        metadata = self.topics[uid].metadata
        if metadata.deletion_timestamp is not None and not metadata.finalizers:
            del self.topics[uid]

    def brokers_delete_data(self) -> None:
        """What brokers do with a set that is marked `deleting`."""
        for name, found in self.sets.items():
            if found.deleting:
                emptied = tuple(replace(p, replicas=(), isr=(), leader=None) for p in found.partitions)
                self.sets[name] = replace(found, partitions=emptied)

    def condition(self, uid: str, kind: str) -> dict[str, Any]:
        conditions = self.topics[TopicUid(uid)].status["conditions"]
        return next(condition for condition in conditions if condition["type"] == kind)

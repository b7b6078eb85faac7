"""The status of a Topic, written by the operator alone, and the counts of partitions that are not well, for metrics.

`leaders` counts partitions whose leader is a live broker in its present life, `inSync` the ISR seats with the same
property, without those that are to go. A partition is under-replicated while fewer are in sync than `spec.replicas`,
also while it waits for its turn to get more. Messages depend on nothing but that state, so that the next pass never
changes them. `Health` counts by the same rules, under the names that Kafka users alert on; topics of other clusters do
not count. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.core.control.actions import PatchStatus
from headrace.core.control.conditions import Condition, by_type, named, named_brokers, notices, render
from headrace.core.control.elections import preferred_condition
from headrace.core.control.last_resort import awaited
from headrace.core.control.observed import Broker, BrokerState, Observed
from headrace.core.control.placement import TooFewBrokers
from headrace.core.control.reassignment import Unfinished
from headrace.core.control.reclaiming import Withheld
from headrace.core.replication.isr import floor
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import PAUSED_ANNOTATION, Topic, TopicSpec
from headrace.core.types import BrokerId, PartitionKey

_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Outlook:
    """The things that the planner cannot, or will not, do for a topic now."""

    regressed: bool = False
    too_few: TooFewBrokers | None = None
    unfinished: Unfinished = field(default_factory=Unfinished)
    withheld: Withheld | None = None


def summarize(
    topic: Topic,
    states: Sequence[PartitionState],
    observed: Observed,
    outlook: Outlook,
    now_ms: int,
) -> PatchStatus | None:
    """Return the patch that makes the status true, or None where it is; `now_ms` is wall time, for
    `lastTransitionTime`."""
    offline = [state for state in states if not observed.holds(state.leader)]
    why_offline = _offline_message(topic, offline, observed)
    unplaced = _unplaced_message(topic, states)
    conditions = (
        _ready(why_offline, outlook),
        _under_replicated(topic, states, observed, unplaced),
        _offline(why_offline, unplaced),
        _reassigning(states, outlook.unfinished),
        _not_paused(topic),
        *preferred_condition(topic, states),
    )
    wanted = topic.spec.partitions
    online = [state.leader.broker for state in states if state.leader is not None and observed.holds(state.leader)]
    summary = {
        "observedGeneration": topic.metadata.generation,
        "minInsyncReplicas": topic.spec.min_insync_replicas,
        "leaders": f"{len(online)}/{wanted}",
        "inSync": f"{sum(in_sync(state, observed) for state in states)}/{wanted * topic.spec.replicas}",
        "leadersByBroker": " ".join(f"{broker}:{count}" for broker, count in sorted(Counter(online).items())),
    }
    return _patch(topic, summary, conditions, now_ms)


def _not_paused(topic: Topic) -> Condition:
    if topic.invalid_pause is None:
        return Condition.off(ConditionType.PAUSED, "NotPaused")
    return Condition.off(
        ConditionType.PAUSED,
        "InvalidAnnotation",
        f"annotation {PAUSED_ANNOTATION} is {topic.invalid_pause[:_SHOWN_CHARACTERS]!r}, and the topic is not paused:"
        " write true, or false, or remove it",
    )


def pause(topic: Topic, now_ms: int) -> PatchStatus | None:
    """Return a patch with Paused=True beside the rest of the status; None where it has that already."""
    message = f"annotation {PAUSED_ANNOTATION} is set: the operator leaves this topic alone until it is removed"
    return _patch(topic, {}, (Condition.on(ConditionType.PAUSED, "PausedByAnnotation", message),), now_ms)


def _patch(topic: Topic, summary: dict[str, Any], conditions: Sequence[Condition], now_ms: int) -> PatchStatus | None:
    previous = by_type(topic.status.get("conditions") or ())
    written = [render(condition, previous, topic.metadata.generation, now_ms) for condition in conditions]
    # Whole lists are replaced by a merge patch: conditions that are not ours to change now are kept.
    names = {condition["type"] for condition in written}
    kept = [dict(condition) for name, condition in previous.items() if name not in names]
    status = {**summary, "conditions": [*kept, *written]}
    if all(topic.status.get(name) == value for name, value in status.items()):
        return None
    return PatchStatus(topic, status, "what is observed has changed", notices(conditions, previous))


def _ready(why_offline: str, outlook: Outlook) -> Condition:
    obstacle = _obstacle(outlook)
    if obstacle is not None:
        return Condition.off(ConditionType.READY, *obstacle)
    if why_offline:
        return Condition.off(ConditionType.READY, "PartitionsOffline", why_offline)
    return Condition.on(ConditionType.READY, "AllPartitionsOnline")


def _obstacle(outlook: Outlook) -> tuple[str, str] | None:
    """Return (reason, message) of what keeps the operator from giving the topic what it asks for."""
    if outlook.regressed:
        return "MetadataRegressed", (
            "brokers have seen higher epochs than the API server tells, as after a restore of its data: nobody is"
            " elected until `headrace cluster recover` has run"
        )
    if outlook.withheld is not None:
        return outlook.withheld.reason, outlook.withheld.message
    if outlook.too_few is not None:
        too_few = outlook.too_few
        return "InsufficientBrokers", (
            f"spec.replicas is {too_few.needed}, which needs as many brokers that are live and not draining, and there"
            f" are {too_few.ready} of {too_few.known}: start more brokers (scale the StatefulSet) or wait for them"
        )
    return None


def _unplaced_message(topic: Topic, states: Sequence[PartitionState]) -> str:
    """Return the message; empty where every partition has its place."""
    wanted = topic.spec.partitions
    missing = wanted - len(states)
    return (
        f"{missing} of {wanted} partitions stand on no broker yet: the condition Ready says why" if missing > 0 else ""
    )


def _under_replicated(topic: Topic, states: Sequence[PartitionState], observed: Observed, unplaced: str) -> Condition:
    lagging = [state for state in states if in_sync(state, observed) < topic.spec.replicas]
    least = topic.spec.min_insync_replicas
    below = [state for state in states if observed.holds(state.leader) and is_under_min_isr(state, least, observed)]
    if below:
        message = f"{named(below)}: fewer replicas in sync than minInsyncReplicas, {least}: acks=all is refused"
        return Condition.on(ConditionType.UNDER_REPLICATED, "BelowMinInsyncReplicas", message)
    if lagging:
        message = f"{named(lagging)}: a replica is not in sync{_whose(lagging, observed)}"
        return Condition.on(ConditionType.UNDER_REPLICATED, "ReplicasNotInSync", message)
    if unplaced:
        return Condition.on(ConditionType.UNDER_REPLICATED, "NotPlaced", unplaced)
    return Condition.off(ConditionType.UNDER_REPLICATED, "AllReplicasInSync")


def _whose(lagging: Sequence[PartitionState], observed: Observed) -> str:
    """Return the brokers that those replicas are to be on, and which of them there are not."""
    late = {
        broker
        for state in lagging
        for broker in state.target
        if not any(seat.broker == broker and observed.holds(seat) for seat in state.isr)
    }
    unknown = sorted(filter(observed.was_never_seen, late))
    which = f", that of {named_brokers(sorted(late))}" if late else ""
    if not unknown:
        return which
    there_is = f"there {'is' if len(unknown) == 1 else 'are'} no {named_brokers(unknown)} (without a Lease)"
    return f"{which}; {there_is}: others take over as soon as there are enough"


def _offline(why_offline: str, unplaced: str) -> Condition:
    if why_offline:
        return Condition.on(ConditionType.OFFLINE, "NoLiveLeader", why_offline)
    if unplaced:
        return Condition.on(ConditionType.OFFLINE, "NotPlaced", unplaced)
    return Condition.off(ConditionType.OFFLINE, "AllPartitionsOnline")


def _reassigning(states: Sequence[PartitionState], unfinished: Unfinished) -> Condition:
    moving = [state for state in states if state.adding or state.removing]
    waiting = f"partitions that wait for their turn: {unfinished.waiting}" if unfinished.waiting else ""
    if moving:
        message = f"{named(moving)}: replicas are moving" + (f"; {waiting}" if waiting else "")
        return Condition.on(ConditionType.REASSIGNING, "ReplicasMoving", message)
    if waiting:
        return Condition.on(ConditionType.REASSIGNING, "WaitingForTurn", waiting)
    if unfinished.stuck:
        leaving = ", ".join(map(str, unfinished.stuck))
        message = (
            f"brokers that are to leave ({leaving}) hold replicas that no other broker can take: start more brokers, or"
            " lower spec.replicas"
        )
        return Condition.on(ConditionType.REASSIGNING, "WaitingForBrokers", message)
    return Condition.off(ConditionType.REASSIGNING, "NothingMoving")


def _offline_message(topic: Topic, offline: Sequence[PartitionState], observed: Observed) -> str:
    """Return which brokers to start, and what to do where that cannot be; empty where nothing is offline."""
    missing = {state.id: awaited(topic.spec, PartitionKey(topic.uid, state.id), state, observed) for state in offline}
    stuck = [state for state in offline if missing[state.id]]
    others = [state for state in offline if not missing[state.id]]
    brokers = {broker for each in missing.values() for broker in each}
    return "; ".join(filter(None, (_leaderless(others), _stuck(stuck, brokers, observed))))


def _leaderless(offline: Sequence[PartitionState]) -> str:
    if not offline:
        return ""
    holders = sorted({broker for state in offline for broker in state.replicas})
    if all(len(state.replicas) <= 1 for state in offline):
        return f"{named(offline)}: no live leader; the replicas are on these brokers, start them: {_listed(holders)}"
    members = {seat.broker for state in offline for seat in state.isr}
    return f"{named(offline)}: no live leader; these brokers were in sync, start them: {_listed(members)}"


def _stuck(offline: Sequence[PartitionState], brokers: Collection[BrokerId], observed: Observed) -> str:
    """Return the sentence about partitions that come back only with the data of all replicas."""
    if not offline:
        return ""
    running = {broker for broker in brokers if observed.state_of(broker) is BrokerState.READY}
    start = f"; start brokers {_listed({*brokers} - running)}" if {*brokers} - running else ""
    look = f"; brokers {_listed(running)} run and have not said it: their logs tell why" if running else ""
    return (
        f"{named(offline)}: those in sync that run do not have their seats back, as their logs are not intact or they"
        f" are starting: offline until all replicas have said what they hold{start}{look}. Where one is gone for good,"
        " spec.uncleanLeaderElection: true has the best of the others lead, without what only that one had"
    )


def _listed(brokers: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


def is_under_min_isr(state: PartitionState, min_insync_replicas: int, observed: Observed) -> bool:
    """Return whether acks=all is refused; replicas that are to go count as long as they are there."""
    return sum(map(observed.holds, state.isr)) < floor(state, min_insync_replicas)


def in_sync(state: PartitionState, observed: Observed) -> int:
    """Return how many of those that stay are in sync, and alive."""
    return sum(observed.holds(member) for member in state.isr if member.broker not in state.removing)


class BrokerStanding(StrEnum):
    """A broker's state, where the planner's `Lost` is split by whether the broker is missed: Leases stay for ever."""

    READY = BrokerState.READY
    UNPROVEN = BrokerState.UNPROVEN
    DRAINING = BrokerState.DRAINING
    LOST = BrokerState.LOST
    STOPPED = "Stopped"
    """A broker that stopped cleanly and is to come back."""
    GONE = "Gone"
    """A broker that is gone for good: the StatefulSet does not ask for it, and it has stopped cleanly or no partition
    names it."""


def standings(observed: Observed) -> Counter[BrokerStanding]:
    """Return how many brokers there are of each state."""
    named = {broker for found in observed.sets for state in found.partitions for broker in state.replicas}
    return Counter(_standing(broker, observed, named) for broker in observed.brokers.values())


def _standing(broker: Broker, observed: Observed, named: Collection[BrokerId]) -> BrokerStanding:
    if broker.state is not BrokerState.LOST:
        return BrokerStanding(broker.state)
    if broker.clean:
        return BrokerStanding.STOPPED if broker.id in observed.expected else BrokerStanding.GONE
    return BrokerStanding.GONE if broker.id in observed.leaving and broker.id not in named else BrokerStanding.LOST


@dataclass(frozen=True, slots=True)
class Health:
    topics: int = 0
    partitions: int = 0
    offline: int = 0
    """Partitions without a live leader."""
    under_replicated: int = 0
    under_min_isr: int = 0
    """Partitions for which `acks=all` is refused, or would be."""
    reassigning: int = 0
    not_preferred: int = 0
    """Partitions that are led by another broker than their preferred leader."""

    @classmethod
    def of(cls, topics: Iterable[Topic], observed: Observed) -> "Health":
        ours = {topic.uid: topic.spec for topic in topics if topic.spec.cluster == observed.cluster}
        known = [(ours[s.topic_uid], state) for s in observed.sets if s.topic_uid in ours for state in s.partitions]
        return cls(
            topics=len(ours),
            partitions=len(known),
            offline=sum(not observed.holds(state.leader) for _, state in known),
            under_replicated=sum(in_sync(state, observed) < spec.replicas for spec, state in known),
            under_min_isr=sum(_is_under_min_isr(spec, state, observed) for spec, state in known),
            reassigning=sum(bool(state.adding or state.removing) for _, state in known),
            not_preferred=sum(_is_not_preferred(state) for _, state in known),
        )


def _is_under_min_isr(spec: TopicSpec, state: PartitionState, observed: Observed) -> bool:
    return is_under_min_isr(state, spec.min_insync_replicas, observed)


def _is_not_preferred(state: PartitionState) -> bool:
    return state.leader is not None and state.target[:1] != (state.leader.broker,)

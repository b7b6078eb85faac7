"""Data on brokers that no PartitionSet names: it is searched for before anything is placed in its stead, and given
seats again.

    a partition without a place ── it never had one (`Topic.places`) ──> it is new: no broker is asked
        ── it had one, or the topic claims another's data (`headrace.io/adopt-uid`) ──> every broker is asked (`held`)
             ── one has not answered, or has not set aside what it holds ──> wait, and name the broker
             ── some broker holds it ──> the greatest (epoch, end) leads in a new epoch, in sync alone
             ── none does ──> it is new

A log that is set aside is closed: no broker leads or votes with it until a PartitionSet names it again, so what a
broker reports of it stays true. That is what makes the report a promise, and why a log that is still open is waited
for.

A claim counts until the topic has places. It is refused, and nothing is placed, where the data is not its to have:
another topic lives under that uid or has the data already, it is of another namespace, it has more partitions than the
topic asks for, or the topic has data of its own in the same place. What was claimed keeps its offsets, epochs and
producers: brokers rename the directories (`PartitionSet.adopted`), once, before they open them.

Invariants: nothing is placed empty while a broker holds data of it, or may; new epochs are above all that any broker
knows. Pure; the same picture gives the same answer, so that it does not matter where a predecessor died.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.core.control.actions import Notice
from headrace.core.control.broker_reports import HeldLog
from headrace.core.control.conditions import by_type, named, named_brokers
from headrace.core.control.deletion import FINALIZER
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.control.placement import missing_partitions
from headrace.core.limits import TOPIC_PARTITIONS_MAX
from headrace.core.resources.lease import lease_name
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import ADOPT_ANNOTATION, Places, Topic
from headrace.core.types import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    TopicName,
    TopicUid,
)

_UID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_Logs = Mapping[BrokerId, HeldLog]


@dataclass(frozen=True, slots=True)
class Withheld:
    """The result where nothing of the topic is placed now: the condition Ready has the reason."""

    reason: str
    message: str

    @classmethod
    def refused(cls, why: str) -> "Withheld":
        remedy = "the topic is not placed, and the data stays where it is: correct the annotation, or remove it"
        return cls("AdoptionRefused", f"annotation {ADOPT_ANNOTATION}: {why}; {remedy}")

    @classmethod
    def waiting(cls, why: str) -> "Withheld":
        return cls("WaitingForReports", f"brokers may hold its data, and it must not begin empty: {why}")


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The partitions of which some broker holds data, with their new states."""

    states: tuple[PartitionState, ...] = ()
    claimed: TopicUid | None = None
    adopted: frozenset[PartitionId] = frozenset()
    """The partitions of `states` that go on with the data of `claimed`."""

    @property
    def partitions(self) -> frozenset[PartitionId]:
        return frozenset(state.id for state in self.states)

    def notices(self, states: Iterable[PartitionState]) -> tuple[Notice, ...]:
        """Return the notices about its own partitions among `states`."""
        ours = [state for state in states if state.id in self.partitions]
        adopted = [state for state in ours if state.id in self.adopted]
        found = [state for state in ours if state.id not in self.adopted]
        return (
            *_told(adopted, "DataAdopted", f"the data of topic uid {self.claimed} goes on here"),
            *_told(found, "DataFound", "no PartitionSet placed it, and its data was found on brokers"),
        )


@dataclass(frozen=True, slots=True)
class Claims:
    """The topics that there are, and which of them has the data of another, or is to have it: the oldest one."""

    names: Mapping[TopicUid, TopicName] = field(default_factory=dict)
    taken: Mapping[TopicUid, TopicUid] = field(default_factory=dict)
    going: frozenset[TopicUid] = frozenset()
    """The topics that are being deleted: they block no other for long."""

    @classmethod
    def of(cls, topics: Sequence[Topic], observed: Observed) -> "Claims":
        """Return the claims; `topics` are those of all clusters."""
        sets, taken = _by_topic(observed), dict[TopicUid, TopicUid]()
        ours = [topic for topic in topics if topic.spec.cluster == observed.cluster]
        for topic in sorted(ours, key=lambda topic: (topic.metadata.creation_timestamp or "", topic.full_name)):
            claimed = claimed_uid(topic, sets.get(topic.uid, ()))
            if claimed is not None and not topic.is_going:
                taken.setdefault(claimed, topic.uid)
        names = {topic.uid: topic.full_name for topic in topics}
        for found in observed.sets:
            if found.adopted_uid is not None and found.topic_uid in names:
                taken[found.adopted_uid] = found.topic_uid
        going = frozenset(topic.uid for topic in topics if topic.is_going)
        return cls(names, taken, going)


def claimed_uid(topic: Topic, sets: Sequence[PartitionSet]) -> TopicUid | None:
    """Return the uid of the topic whose data it claims, until it has places; afterwards of the one whose data it has,
    as long as the annotation stays."""
    claimed = TopicUid(topic.adopts)
    if not claimed or claimed == topic.uid or (sets and all(s.adopted_uid != claimed for s in sets)):
        return None
    return claimed


def doubtful_partitions(topic: Topic, sets: Sequence[PartitionSet]) -> list[PartitionId]:
    """Return the partitions without a place of which a broker may hold data: nothing can have been written to the
    others."""
    missing = missing_partitions(topic, sets)
    if _claims_now(topic, sets):
        return missing
    return [partition for partition in missing if partition < _places(topic).begun]


def _claims_now(topic: Topic, sets: Sequence[PartitionSet]) -> bool:
    return claimed_uid(topic, sets) is not None and not sets and not topic.places.begun


def _places(topic: Topic) -> Places:
    # The finalizer is written with the note of what was placed: without that it was lost.
    lost = not topic.places.begun and FINALIZER in topic.metadata.finalizers
    return Places(TOPIC_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX) if lost else noted_or_told(topic)


def noted_or_told(topic: Topic) -> Places:
    """Return the topic's note. Where it has none, because an operator that wrote none placed it, or it was replaced by
    hand, return what its status shows. That must be noted before the status changes."""
    led, _, count = str(topic.status.get("leaders") or "").partition("/")
    offline = by_type(topic.status.get("conditions") or ()).get(ConditionType.OFFLINE, {})
    if topic.places.begun or not (led.isdecimal() and count.isdecimal()):
        return topic.places
    had_places = int(led) > 0 or offline.get("reason") == "NoLiveLeader"
    return Places(int(count), int(count)) if had_places else Places()


def inquiries(topics: Collection[Topic], observed: Observed) -> tuple[TopicUid, ...]:
    """Return the topics for which every broker is to report what it holds before the next plan."""
    if observed.in_state(BrokerState.UNPROVEN):
        return ()
    sets, asked, living = _by_topic(observed), set[TopicUid](), {topic.uid for topic in topics}
    for topic in topics:
        own = sets.get(topic.uid, [])
        if observed.tends(topic) and doubtful_partitions(topic, own):
            claimed = claimed_uid(topic, own)
            asked.add(topic.uid)
            if claimed is not None and claimed not in living and _UID.fullmatch(claimed):
                asked.add(claimed)
    return tuple(sorted(asked))


def asks_again(asked: Iterable[TopicUid], observed: Observed) -> bool:
    """Return whether the answers may be others in a moment."""
    uids, alive = {*asked}, observed.in_state(BrokerState.READY, BrokerState.DRAINING)
    logs = [(key, log) for report in observed.reports.values() for key, log in report.logs.items()]
    is_settling = any(key.uid in uids and not log.set_aside for key, log in logs)
    return bool(uids) and (is_settling or any(broker.id not in observed.reports for broker in alive))


def reclaim(
    topic: Topic, sets: Sequence[PartitionSet], doubtful: Sequence[PartitionId], claims: Claims, observed: Observed
) -> Reclaimed | Withheld | None:
    """Return the outcome for `doubtful`: seats for the partitions that some broker holds; no broker holds the others.

    The outcome is None where brokers have yet to be asked.
    """
    claimed = claimed_uid(topic, sets)
    why = _why_not_its(topic, claimed, claims) if claimed is not None else None
    if why is not None:
        return why
    if observed.unreadable:
        return _wait_for_leases(observed.unreadable)
    if not {topic.uid, claimed or topic.uid} <= {*observed.asked}:
        return None
    silent = sorted(broker for broker in {*observed.brokers, *observed.expected} if not _has_reported(broker, observed))
    # Where no status shows that they have places, an operator died as it placed them: lost brokers are not waited for.
    is_sure = claimed is not None or any(partition < _places(topic).seen for partition in doubtful)
    if silent and (is_sure or any(observed.state_of(broker) is not BrokerState.LOST for broker in silent)):
        return _wait_for(silent, observed)
    found = _Reclaiming(topic, doubtful, claimed, observed).run(has_places=bool(sets))
    return _wait_for(silent, observed) if silent and found != Reclaimed() else found


def _wait_for_leases(unreadable: Collection[BrokerId]) -> Withheld:
    names = ", ".join(lease_name(broker) for broker in sorted(unreadable))
    return Withheld.waiting(
        f"the Lease of {_brokers(unreadable)} cannot be read ({names}), so that nobody knows whom to ask; correct it,"
        " or delete it where the broker is gone for good, disk and all"
    )


def _wait_for(silent: Sequence[BrokerId], observed: Observed) -> Withheld:
    if not any(broker in observed.brokers for broker in silent):
        return Withheld.waiting(
            f"{_brokers(silent)}, for which the StatefulSet asks, never had a Lease or has none any more; start what is"
            " down, or scale the StatefulSet to the brokers that there are"
        )
    silent = [broker for broker in silent if broker in observed.brokers]
    return Withheld.waiting(
        f"{_brokers(silent)} did not answer; start what is down, and where a broker is gone for good, disk and all,"
        f" delete its Lease (headrace-broker-{min(silent)})"
    )


class _Reclaiming:
    """The reclaiming of one topic in one pass, once every broker has reported."""

    def __init__(
        self, topic: Topic, doubtful: Sequence[PartitionId], claimed: TopicUid | None, observed: Observed
    ) -> None:
        self._topic, self._doubtful, self._claimed, self._observed = topic, doubtful, claimed, observed
        self._own = self._held(topic.uid)
        self._others = self._held(claimed) if claimed is not None else {}
        self._leads: Counter[BrokerId] = Counter()

    def run(self, *, has_places: bool) -> Reclaimed | Withheld:
        why = self._why_refused(has_places=has_places)
        if why:
            return Withheld.refused(why)
        found = {p: logs for p in self._doubtful if (logs := self._own.get(p) or self._others.get(p))}
        why = next((why for p, logs in found.items() if (why := _why_unsettled(p, logs))), "")
        if why:
            return Withheld.waiting(why)
        adopted = frozenset(partition for partition in found if partition not in self._own)
        states = tuple(self._seated(partition, logs) for partition, logs in found.items())
        return Reclaimed(states, self._claimed, adopted)

    def _held(self, uid: TopicUid) -> dict[PartitionId, dict[BrokerId, HeldLog]]:
        held: dict[PartitionId, dict[BrokerId, HeldLog]] = {}
        for broker, report in sorted(self._observed.reports.items()):
            for key, log in report.logs.items():
                if key.uid == uid:
                    held.setdefault(key.partition, {})[broker] = log
        return held

    def _why_refused(self, *, has_places: bool) -> str:
        """Return the refusal by what brokers hold, as a clause."""
        if self._claimed is None:
            return ""
        if not (self._others or self._own or has_places):
            return f"no broker holds data of a topic with uid {self._claimed}"
        namespaces = {log.namespace for logs in self._others.values() for log in logs.values()} - {""}
        foreign = namespaces - {self._topic.metadata.namespace}
        if foreign:
            return f"the data of {self._claimed} is of namespace {min(foreign)}"
        count, wanted = max(self._others, default=-1) + 1, self._topic.spec.partitions
        if count > wanted:
            return f"the data of {self._claimed} has {count} partitions, and spec.partitions is {wanted}"
        both = [p for p in self._doubtful if p in self._own and p in self._others]
        if both:
            return (
                f"partition {both[0]} has data of this topic and of {self._claimed}, on {_brokers(self._own[both[0]])}"
            )
        return ""

    def _seated(self, partition: PartitionId, logs: _Logs) -> PartitionState:
        def rank(broker: BrokerId) -> tuple[int, int]:
            epoch, end = logs[broker].rank
            return -epoch, -end

        leaving = self._observed.leaving
        best = min(logs, key=lambda broker: (rank(broker), broker in leaving, self._leads[broker], broker))
        others = sorted((b for b in logs if b != best), key=lambda broker: (broker in leaving, rank(broker), broker))
        self._leads[best] += 1
        leader = self._observed.brokers[best].seat
        leader_epoch, partition_epoch = self._known(partition, logs)
        return PartitionState(
            id=partition,
            leader=leader,
            leader_epoch=LeaderEpoch(leader_epoch + 1),
            partition_epoch=PartitionEpoch(partition_epoch + 1),
            replicas=(best, *others[: self._topic.spec.replicas - 1]),
            isr=(leader,),
        )

    def _known(self, partition: PartitionId, logs: _Logs) -> tuple[int, int]:
        """Return the greatest epochs that any broker knows, also of brokers that hold nothing of it."""
        keys = [PartitionKey(uid, partition) for uid in (self._topic.uid, self._claimed) if uid is not None]
        reports = self._observed.reports.values()
        known = [report.known[key] for report in reports for key in keys if key in report.known]
        promised = [max(log.last_epoch, log.seen_epoch) for log in logs.values()]
        return (
            max(0, *promised, *(epochs.leader_epoch for epochs in known)),
            max((epochs.partition_epoch for epochs in known), default=PartitionEpoch(0)),
        )


def _why_not_its(topic: Topic, claimed: TopicUid, claims: Claims) -> Withheld | None:
    """Return why it cannot have the data whatever brokers hold, or not yet."""
    if not _UID.fullmatch(claimed):
        return Withheld.refused(f"{claimed!r} is no uid of a topic")
    other = claimed if claimed in claims.names else claims.taken.get(claimed, topic.uid)
    if other == topic.uid:
        return None
    if other in claims.going:
        return Withheld.waiting(f"topic {claims.names[other]}, which has the data of {claimed}, is still being deleted")
    if other == claimed:
        return Withheld.refused(f"topic {claims.names[claimed]} lives under uid {claimed}")
    return Withheld.refused(f"topic {claims.names[other]} has the data of {claimed}")


def _why_unsettled(partition: PartitionId, logs: _Logs) -> str:
    """Return the reason as a clause; empty where all that there is of the partition is closed, and can be read."""
    for broker, log in logs.items():
        if log.trouble:
            return f"broker {broker} holds partition {partition} and cannot read it ({log.trouble})"
    held_open = [broker for broker, log in logs.items() if not log.set_aside]
    return f"{_brokers(held_open)} have yet to set partition {partition} aside" if held_open else ""


def _has_reported(broker: BrokerId, observed: Observed) -> bool:
    """Return whether it has reported in its present life."""
    report, known = observed.reports.get(broker), observed.brokers.get(broker)
    return report is not None and known is not None and report.seat == known.seat


def _by_topic(observed: Observed) -> dict[TopicUid, list[PartitionSet]]:
    sets: dict[TopicUid, list[PartitionSet]] = {}
    for found in observed.sets:
        sets.setdefault(found.topic_uid, []).append(found)
    return sets


def _told(states: Sequence[PartitionState], reason: str, what: str) -> tuple[Notice, ...]:
    if not states:
        return ()
    leaders = sorted({state.leader.broker for state in states if state.leader is not None})
    return (Notice(reason, f"{named(states)}: {what}; led by {_brokers(leaders)} now"),)


def _brokers(brokers: Iterable[BrokerId]) -> str:
    return named_brokers(sorted(brokers))

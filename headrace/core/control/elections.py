"""The operator's elections: which broker leads, which is no longer in sync, and which is preferred.

    led ── the leader is lost, or of an older life ──> elect a renewed member of the ISR under the next leader epoch
     │                                                  ├── none can be, and unclean elections are allowed and sane
     │                                                  │     ──> elect a live replica, in sync alone, with an Event
     │                                                  └── else ──> offline: no leader, the ISR stays as it is
     ├── the leader drains, leaves, or is to be removed ──> elect another, if there is one; else it goes on
     └── the preferred leader is in sync and steady ──> elect it
    whatever else happens: the seats of lost brokers leave the ISR while enough others are in sync

A seat is *renewed* when it is of its broker's present life. A void seat (of an older life) elects no leader and does
not count, but stays in the ISR while its broker lives: the broker renews it if its log is intact, or gives it up. A
partition with a single replica is left to its broker, which elects itself (`replication.seats.claim`).

Invariants: a leader that is elected cleanly is a renewed member of the ISR on a broker that is ready; the ISR only
shrinks here, by brokers that are lost, under a leader, and never below what must be in sync
(`replication.isr.floor`); both epochs only rise.

The annotation `headrace.io/preferred-leaders: '{"0": 2, "3": 1}'` names the preferred leader of a partition: it becomes
the first of its replicas. Only a replica can be named; the condition PreferredLeaders names what cannot be done.
Balancing leaves the order of these partitions alone while the annotation names them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.core.control.actions import Change, ChangeBudget, ChangeKind, revised
from headrace.core.control.conditions import Condition
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.replication.isr import floor
from headrace.core.resources.metadata import ConditionType
from headrace.core.resources.partition_set import PartitionState
from headrace.core.resources.topic import PREFERRED_ANNOTATION, Topic, TopicSpec
from headrace.core.types import BrokerId, LeaderEpoch, PartitionId, Seat

_TOLD_MAX = 3
"""The number of mistakes that one message names."""
_EXAMPLE = '{"0": 2}'


@dataclass(frozen=True, slots=True)
class Preference:
    wanted: Mapping[PartitionId, BrokerId] = field(default_factory=dict)
    """The preferred leaders that can be."""
    problems: tuple[str, ...] = ()
    """The ones that cannot, with the remedy."""


def preference_of(topic: Topic, states: Sequence[PartitionState]) -> Preference:
    text = topic.metadata.annotations.get(PREFERRED_ANNOTATION)
    if text is None:
        return Preference()
    try:
        asked: Any = json.loads(text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        return Preference(problems=(f"{text[:80]!r} is no JSON object: write partitions and brokers, as {_EXAMPLE}",))
    targets = {str(state.id): state.target for state in states}
    awaited = {str(number) for number in range(topic.spec.partitions)} - {*targets}
    found = {name: _problem(name, broker, targets) for name, broker in asked.items() if name not in awaited}
    wanted = {PartitionId(int(name)): BrokerId(asked[name]) for name, problem in found.items() if not problem}
    return Preference(wanted, tuple(filter(None, found.values())))


def _problem(name: str, broker: object, targets: Mapping[str, Sequence[BrokerId]]) -> str:
    """Return the problem; empty where there is none."""
    if name not in targets:
        return f"there is no partition {name[:20]!r}: the topic has {len(targets)}, from 0"
    if not isinstance(broker, int) or isinstance(broker, bool):
        return f"partition {name}: {str(broker)[:20]!r} is no broker's id: write a number, as {_EXAMPLE}"
    if broker not in targets[name]:
        replicas = ", ".join(map(str, sorted(targets[name])))
        return f"partition {name}: broker {broker} has no replica of it: name one of {replicas}"
    return ""


def preferred_condition(topic: Topic, states: Sequence[PartitionState]) -> tuple[Condition, ...]:
    """Return the condition; none where the topic has never had the annotation."""
    kind, name = ConditionType.PREFERRED_LEADERS, ConditionType.PREFERRED_LEADERS.value
    if PREFERRED_ANNOTATION not in topic.metadata.annotations:
        was_told = any(each.get("type") == name for each in topic.status.get("conditions") or ())
        return (Condition.off(kind, "NotSet"),) if was_told else ()
    problems = preference_of(topic, states).problems
    if not problems:
        return (Condition.on(kind, "Accepted"),)
    more = f"; and {len(problems) - _TOLD_MAX} more" if len(problems) > _TOLD_MAX else ""
    message = f"annotation {PREFERRED_ANNOTATION}: {'; '.join(problems[:_TOLD_MAX])}{more}"
    return (Condition.off(kind, "Refused", message),)


@dataclass(frozen=True, slots=True)
class _Outcome:
    leader: Seat | None
    isr: tuple[Seat, ...]
    kind: ChangeKind
    cause: str
    reason: str
    loss: str = ""


@dataclass(slots=True)
class Elections:
    """The elections of one topic in one pass; partitions come in the order of their ids."""

    spec: TopicSpec
    observed: Observed
    budget: ChangeBudget
    leads: Counter[BrokerId]
    """The number of the topic's partitions that each live broker leads; kept up to date."""

    def change_for(self, state: PartitionState) -> Change | None:
        """Return what to write for this partition, if anything."""
        if len(state.replicas) <= 1 or self._waits_for_a_sign_of(state.leader):
            return None
        outcome = self._decide(state)
        if outcome is None:
            return self._shrink(state) if state.leader is not None else None
        isr = self._without_the_lost(state, outcome.isr) if outcome.leader is not None else outcome.isr
        epoch = state.leader_epoch if outcome.leader is None else LeaderEpoch(state.leader_epoch + 1)
        elected = revised(state, leader=outcome.leader, leader_epoch=epoch, isr=isr)
        self._count(state.leader, outcome.leader)
        kinds = (outcome.kind, ChangeKind.SHRUNK) if len(isr) < len(outcome.isr) else (outcome.kind,)
        return Change(elected, outcome.reason, kinds, outcome.cause, outcome.loss)

    def _shrink(self, state: PartitionState) -> Change | None:
        isr = self._without_the_lost(state, state.isr)
        if isr == state.isr:
            return None
        return Change(revised(state, isr=isr), _lost_reason(state, isr), (ChangeKind.SHRUNK,))

    def _waits_for_a_sign_of(self, leader: Seat | None) -> bool:
        """Return whether it is not known if the leader's broker is alive."""
        return self.observed.holds(leader) and not self.observed.serves(leader)

    def _decide(self, state: PartitionState) -> _Outcome | None:
        leader = state.leader
        if leader is None or not self._is_sound(state, leader):
            return self._replace(state)
        if self.observed.state_of(leader.broker) is BrokerState.DRAINING:
            return self._move(state, self._electable(state), f"broker {leader.broker} drains")
        unwanted = self._why_unwanted(state, leader.broker)
        if unwanted:
            staying = [seat for seat in self._electable(state) if self._is_staying(state, seat.broker)]
            return self._move(state, staying, unwanted)
        return self._maybe_return(state, leader)

    def _is_sound(self, state: PartitionState, leader: Seat) -> bool:
        return self.observed.serves(leader) and leader in state.isr and leader.broker in state.replicas

    def _why_unwanted(self, state: PartitionState, leader: BrokerId) -> str:
        if leader in self.observed.leaving:
            return f"broker {leader} is to leave"
        # While other replicas catch up, there is no hurry.
        if leader in state.removing and not state.adding:
            return f"broker {leader} is to give its replica away"
        return ""

    def _replace(self, state: PartitionState) -> _Outcome | None:
        """Replace the leader of a partition that has none, or none that can lead."""
        gone = "nobody leads" if state.leader is None else f"leader {state.leader} is gone"
        electable = self._electable(state)
        if electable:
            return self._elect(state, self._best(state, electable), ChangeKind.ELECTED, gone)
        if any(self.observed.state_of(seat.broker) is BrokerState.UNPROVEN for seat in state.isr):
            return None  # A member of the ISR may be alive.
        uncleanly = self._elect_uncleanly(state, gone)
        if uncleanly is None and state.leader is not None:
            reason = f"{gone}, and no member of the ISR can be elected"
            return _Outcome(None, state.isr, ChangeKind.OFFLINE, gone, reason)
        return uncleanly

    def _move(self, state: PartitionState, others: list[Seat], why: str) -> _Outcome | None:
        """Move the lead away from a leader that still serves: where there is no other, it goes on."""
        return self._elect(state, self._best(state, others), ChangeKind.MOVED, why) if others else None

    def _maybe_return(self, state: PartitionState, leader: Seat) -> _Outcome | None:
        preferred = (state.target or state.replicas)[0]
        seats = [seat for seat in self._electable(state) if seat.broker == preferred != leader.broker]
        fit = preferred in self.observed.steady and not self.observed.is_full(preferred)
        wanted = bool(seats) and fit and self._is_staying(state, preferred)
        if not wanted or self.budget.returns == 0:
            return None
        self.budget.returns -= 1
        return self._elect(state, seats[0], ChangeKind.RETURNED, "the preferred leader is in sync")

    def _elect_uncleanly(self, state: PartitionState, gone: str) -> _Outcome | None:
        """Elect uncleanly, but only while every member of the ISR is away: one that lives may still renew its seat, and
        loses nothing."""
        if not self.spec.unclean_leader_election or not all(self._is_lost(seat.broker) for seat in state.isr):
            return None
        live = [broker for broker in state.replicas if self.observed.state_of(broker) is BrokerState.READY]
        if not live:
            return None
        broker = min(live, key=lambda broker: (broker in state.adding, *self._rank(state, broker)))
        leader = self.observed.brokers[broker].seat
        in_sync = ", ".join(str(seat.broker) for seat in state.isr) or "nobody"
        loss = (
            f"{leader} was elected although it was not in sync, as spec.uncleanLeaderElection allows: acknowledged"
            f" records that only those in sync had (brokers: {in_sync}) are lost"
        )
        reason = f"{gone}, and {leader} is elected uncleanly"
        return _Outcome(leader, (leader,), ChangeKind.ELECTED_UNCLEANLY, gone, reason, loss)

    def _elect(self, state: PartitionState, leader: Seat, kind: ChangeKind, why: str) -> _Outcome:
        return _Outcome(leader, state.isr, kind, why, f"{why}: {leader} is elected")

    def _electable(self, state: PartitionState) -> list[Seat]:
        ready = [seat for seat in state.isr if self.observed.serves(seat) and seat.broker in state.replicas]
        return [seat for seat in ready if self.observed.state_of(seat.broker) is BrokerState.READY]

    def _best(self, state: PartitionState, electable: list[Seat]) -> Seat:
        return min(electable, key=lambda seat: self._rank(state, seat.broker))

    def _rank(self, state: PartitionState, broker: BrokerId) -> tuple[int, ...]:
        """Return the rank, the least of which is best: a broker that stays and has room, the preferred leader, the one
        that leads least."""
        return (
            not self._is_staying(state, broker),
            self.observed.is_full(broker),
            broker != state.replicas[0],
            self.leads[broker],
            self.budget.leads[broker],
            state.replicas.index(broker),
        )

    def _is_staying(self, state: PartitionState, broker: BrokerId) -> bool:
        return broker not in state.removing and broker not in self.observed.leaving

    def _is_lost(self, broker: BrokerId) -> bool:
        return self.observed.state_of(broker) is BrokerState.LOST

    def _without_the_lost(self, state: PartitionState, isr: tuple[Seat, ...]) -> tuple[Seat, ...]:
        """Return the ISR without lost members, but not below the minimum, where nothing commits anyway: lost members
        then stay electable."""
        in_sync = sum(self.observed.serves(seat) for seat in isr)
        if in_sync < floor(state, self.spec.min_insync_replicas):
            return isr
        return tuple(seat for seat in isr if not self._is_lost(seat.broker))

    def _count(self, before: Seat | None, after: Seat | None) -> None:
        for counts in (self.leads, self.budget.leads):
            if before is not None and self.observed.holds(before):
                counts[before.broker] -= 1
            if after is not None:
                counts[after.broker] += 1


def _lost_reason(state: PartitionState, isr: tuple[Seat, ...]) -> str:
    gone = ", ".join(str(seat) for seat in state.isr if seat not in isr)
    return f"lost, and enough others are in sync: {gone}"

"""Safety rules deleted in turn: the simulator must catch each of them, or it would catch no mistake either.

A mutation replaces functions of the core, or of what stands for disk, API server and shell here. Each says where it is
looked for: plans in which the rule matters. What is played without the mutation must pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.control import electing
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.log.epochs import EpochEnd, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit
from headrace.core.log.intact import DiskFacts, ReplicaFacts, why_not_intact
from headrace.core.replication import events, followers, following, leadership, seats, wishes
from headrace.core.replication.followers import Ends, Followers, InSyncRules
from headrace.core.replication.following import Following
from headrace.core.replication.isr import Isr
from headrace.core.replication.leadership import Leadership
from headrace.core.replication.seen_epochs import SeenEpochs
from headrace.core.replication.set_writer import SetWriter
from headrace.core.replication.truncation import Agreed, AskAgain, BeginAnew, reconcile
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, Offset, Seat
from tests.sim import brokers, disk
from tests.sim.api import Api
from tests.sim.calling import BrokerCaller
from tests.sim.disk import NO_EPOCH_SEEN, NO_LIFE, Disk, Log
from tests.sim.life import Life


@dataclass(frozen=True)
class Patch:
    owner: Any
    attribute: str
    replacement: Any


@dataclass(frozen=True)
class Mutation:
    name: str
    patches: Sequence[Patch]
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What is fixed of the plans that it is looked for in."""
    rests: bool = False
    """It shows only where the cluster is to come to rest."""
    golden: str = ""
    """The script that leads to where it does harm; chance seldom does."""
    breaks: str = ""
    """The rule that is broken then."""
    covers: bool = False
    """Each of these rules stands behind the other: on its own none of `patches` does harm there."""


def _mutation(name: str, owner: Any, attribute: str, replacement: Any, *, rests: bool = False, **plan: Any) -> Mutation:
    return Mutation(name, (Patch(owner, attribute, replacement),), plan, rests)


def _scripted(name: str, golden: str, breaks: str, *patches: Patch, covers: bool = False) -> Mutation:
    return Mutation(name, patches, rests=breaks == "Liveness", golden=golden, breaks=breaks, covers=covers)


# -- who may be in sync ----------------------------------------------------------------------------------------------


def _landed(self: Isr) -> frozenset[Seat]:
    return frozenset(self.state.isr)


def _early(self: Isr) -> frozenset[Seat]:
    landed = frozenset(self.state.isr)
    return landed if self.pending is None else (landed | self.pending.added) - self.pending.removed


def _floor_1(state: PartitionState, min_insync_replicas: int) -> int:
    return 1


def _joins_before_the_epoch(
    self: Followers, seat: Seat, state: PartitionState, high_watermark: Offset, rules: InSyncRules
) -> bool:
    vote = self.vote(seat, rules.durability)
    if vote is None or seat in state.isr or seat.broker not in state.replicas:
        return False
    return vote >= high_watermark


def _joins_below(
    self: Followers, seat: Seat, state: PartitionState, high_watermark: Offset, rules: InSyncRules
) -> bool:
    vote = self.vote(seat, rules.durability)
    return vote is not None and seat not in state.isr and seat.broker in state.replicas


# -- truncation ------------------------------------------------------------------------------------------------------


def _never(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd) -> Agreed:
    return Agreed(log_end, "it never truncates")


def _one_round(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd) -> Agreed | BeginAnew:
    verdict = reconcile(epochs, log_start, log_end, answer)
    return Agreed(verdict.end, verdict.reason) if isinstance(verdict, AskAgain) else verdict


def _to_high_watermark(self: Following) -> list[events.Effect]:
    if self.high_watermark >= self._log.log_end_offset:
        return self._fetch()
    verdict = Agreed(self.high_watermark, "above the high watermark")
    self._begin_cut(verdict.end)
    self._cut = verdict
    return [events.Truncate(verdict.end, verdict.reason)]


def _once_in_an_epoch(self: Following) -> list[events.Effect]:
    if getattr(self, "_asked_in", None) == self.leader_epoch:
        return self._fetch()
    self._asked_in = self.leader_epoch  # type: ignore[attr-defined]
    return _ASK(self)


_ASK = Following._ask


def _serves_anyone(self: Life, leader_epoch: LeaderEpoch) -> bool:
    return True


# -- votes -----------------------------------------------------------------------------------------------------------


def _log_end(self: Ends, durability: object) -> Offset:
    return self.log_end


def _own_log_end(self: GroupCommit) -> Offset:
    return self.log_end


def _truncating_carelessly(self: GroupCommit, end: Offset) -> None:
    self.log_end, self.durable_end = min(self.log_end, end), min(self.durable_end, end)
    self._truncating = True


def _truncated_carelessly(self: GroupCommit, log_end: Offset) -> None:
    self.log_end = log_end
    self.durable_end = min(self.durable_end, log_end)
    self._unsynced_bytes, self._wanted, self._truncating = 0, True, False


def _recovers_without_sync(self: Log) -> None:
    self.epochs.cut(self.log_end_offset)


def _heard_whatever_epoch(self: Leadership, event: Any, now_ms: int) -> list[events.Effect]:
    if isinstance(event, events.FollowerReported):
        event = replace(event, leader_epoch=self.leader_epoch)
    return _HEARD(self, event, now_ms)


_HEARD = Leadership._heard


def _vote_of_any_life(self: Followers, seat: Seat, durability: Durability) -> Offset | None:
    if seat not in self._by_seat:
        return None
    votes = [_VOTE(self, each, durability) for each in self._by_seat if each.broker == seat.broker]
    return max((vote for vote in votes if vote is not None), default=None)


_VOTE = Followers.vote


# -- seats -----------------------------------------------------------------------------------------------------------


def _always_intact(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    return _RENEWED(state, me, replace(log, damage=""))


_RENEWED = seats._renewed


def _renews_leadership(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    claim = _RENEWED(state, me, log)
    leads = state.leader is not None and state.leader.broker == me.broker and me in (claim.state.isr if claim else ())
    return replace(claim, state=replace(claim.state, leader=me)) if leads and claim is not None else claim


def _only_lower_epochs(self: SeenEpochs, state: PartitionState) -> str:
    return _REGRESSION(self, replace(state, leader=None))


_REGRESSION = SeenEpochs.regression


def _empties(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    claim = _RENEWED(state, me, log)
    old = [seat for seat in state.isr if seat.broker == me.broker and seat != me]
    if claim is None and old and log.damage:
        return seats.Claim(seats._next(state, leader=state.leader, isr=()), "given up")
    return claim


def _gives_up_the_last(state: PartitionState, me: Seat) -> PartitionState | None:
    isr = tuple(seat for seat in state.isr if seat != me)
    leader = None if state.leader == me else state.leader
    return None if (leader, isr) == (state.leader, state.isr) else seats._next(state, leader=leader, isr=isr)


def _an_empty_disk_will_do(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return ""


def _memory_never_fails(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return why_not_intact(replace(disk_facts, same_boot=True), replica)


def _misses_nothing(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return why_not_intact(replace(disk_facts, known_incarnation=NO_LIFE), replica)


def _forgets_epochs(self: Disk, known: Incarnation, durability: Durability) -> DiskFacts:
    self.seen_epoch = NO_EPOCH_SEEN
    return _START(self, known, durability)


_START = Disk.start


def _void_is_forgotten(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return why_not_intact(disk_facts, replace(replica, void_before=NO_LIFE))


def _counts_void(self: Observed, seat: Seat | None) -> bool:
    return seat is not None and seat.broker in self.brokers and self.state_of(seat.broker) is BrokerState.READY


def _elects_void(self: electing.Elections, state: PartitionState, leader: Seat, *rest: Any) -> Any:
    """As if each start renewed all that its broker held."""
    now = self.observed.brokers[leader.broker].seat
    isr = tuple(now if seat.broker == now.broker else seat for seat in state.isr)
    return replace(_ELECT(self, state, leader, *rest), leader=now, isr=isr)


_ELECT = electing.Elections._elect


def _only_the_disk_knows(me: object, on_lease: Incarnation, sets: object) -> Incarnation:
    return NO_LIFE


# -- writes ----------------------------------------------------------------------------------------------------------


def _unknown_is_failed(self: SetWriter) -> None:
    self._settle(self.known)
    self._in_flight = False


def _unknown_is_done(self: SetWriter) -> None:
    """What was tried last is believed to be so."""
    self._in_flight = False
    for number, isr in self._isrs.items():
        if isr.pending is not None:
            landed = (frozenset(isr.state.isr) | isr.pending.added) - isr.pending.removed
            state = replace(isr.state, isr=tuple(sorted(landed)), partition_epoch=isr.pending.partition_epoch)
            self._isrs[number] = Isr(state)


def _conflict_is_failure(self: BrokerCaller) -> None:
    self.life.see(_unknown_is_failed)


def _any_version(self: SetWriter, partition_set: PartitionSet, *, based_on: str) -> None:
    if based_on == self.known.metadata.resource_version == partition_set.metadata.resource_version:
        self._settle(partition_set)
    _READ(self, partition_set, based_on=based_on)


def _from_before(self: SetWriter, partition_set: PartitionSet, *, based_on: str) -> None:
    if partition_set.metadata.resource_version not in (based_on, self.known.metadata.resource_version):
        based_on = self.known.metadata.resource_version
    elif partition_set.metadata.resource_version != based_on:
        self._settle(partition_set)
    _READ(self, partition_set, based_on=based_on)


_READ = SetWriter.read


def _cached(self: Api) -> PartitionSet:
    return self.history[max(0, len(self.history) - 2)]


def _waits_for_ever(self: SetWriter, wanted: Any) -> PartitionSet | None:
    return None if self.is_undecided else _WRITE(self, wanted)


_WRITE = SetWriter.write


TWO_OF_THREE: dict[str, Any] = {"moves": False, "brokers": 3, "min_insync_replicas": 2, "unclean": False}
GIVING_UP: dict[str, Any] = {"focus": "call given up", "drill": False, **TWO_OF_THREE}
LOSING_DISKS: dict[str, Any] = {"focus": "disk lost", **TWO_OF_THREE}


LOST = "NoCommittedRecordLost"


def _floors(*owners: Any) -> tuple[Patch, ...]:
    return tuple(Patch(owner, "floor", _floor_1) for owner in owners)


MUTATIONS = (
    _mutation("no maximal ISR", Isr, "maximal", property(_landed)),
    _mutation("a removal counted early", Isr, "maximal", property(_early), focus="call given up", unclean=False),
    _mutation("truncation by high watermark", Following, "_ask", _to_high_watermark),
    _mutation("no truncation", following, "reconcile", _never),
    _mutation("truncation in one round only", following, "reconcile", _one_round),
    _mutation("no truncation fence", Life, "_serves", _serves_anyone),
    _mutation("reconciliation only when the epoch rises", Following, "_ask", _once_in_an_epoch),
    Mutation(
        "void seats are electable",
        (Patch(electing.Elections, "_elect", _elects_void), Patch(Observed, "serves", _counts_void)),
    ),
    _mutation("renewal whatever was lost", seats, "_renewed", _always_intact, **LOSING_DISKS),
    _mutation(
        "renewal by a disk without the partition",
        disk,
        "why_not_intact",
        _an_empty_disk_will_do,
        focus="disk lost",
        **TWO_OF_THREE,
    ),
    _mutation(
        "renewal after memory was lost", disk, "why_not_intact", _memory_never_fails, durability=Durability.REPLICATED
    ),
    _mutation("no voidBefore", disk, "why_not_intact", _void_is_forgotten, **LOSING_DISKS),
    _mutation("votes of what is not on disk", Ends, "vouched", _log_end, durability=Durability.FSYNC),
    _mutation(
        "the leader's own vote is not on disk",
        GroupCommit,
        "vouched_end",
        property(_own_log_end),
        durability=Durability.FSYNC,
    ),
    _mutation(
        "a sync across a truncation vouches",
        GroupCommit,
        "truncating",
        _truncating_carelessly,
        durability=Durability.FSYNC,
    ),
    _mutation("no sync at a start", Log, "recover", _recovers_without_sync, durability=Durability.FSYNC),
    Mutation("no floor", _floors(followers, electing, seats), LOSING_DISKS),
    Mutation("no floor under commits", _floors(leadership)),
    _mutation("an unknown write is taken as failed", SetWriter, "unanswered", _unknown_is_failed, **GIVING_UP),
    _mutation("an unknown write is taken as done", SetWriter, "unanswered", _unknown_is_done),
    _scripted("a 409 decides", "conflict", LOST, Patch(BrokerCaller, "conflicted", _conflict_is_failure)),
    _scripted("a read of the same version decides", "read-same-version", LOST, Patch(SetWriter, "read", _any_version)),
    _scripted("reads that began before", "read-began-before", LOST, Patch(SetWriter, "read", _from_before)),
    _mutation("reads from a stale cache", Api, "get", _cached, rests=True),
    _scripted(
        "votes of any epoch",
        "votes-of-an-older-epoch",
        LOST,
        Patch(Leadership, "_heard", _heard_whatever_epoch),
        Patch(Life, "_serves", _serves_anyone),
        covers=True,
    ),
    _mutation("votes of any life", Followers, "vote", _vote_of_any_life, **LOSING_DISKS),
    _mutation("expansion before the epoch's start", Followers, "_may_join", _joins_before_the_epoch),
    _mutation("expansion below the high watermark", Followers, "_may_join", _joins_below),
    _scripted(
        "leadership renewed under its epoch",
        "leadership-renewed",
        "Liveness",
        Patch(seats, "_renewed", _renews_leadership),
    ),
    _scripted(
        "leadership renewed, epochs change leaders",
        "leadership-renewed",
        "LogMatching",
        Patch(seats, "_renewed", _renews_leadership),
        Patch(SeenEpochs, "regression", _only_lower_epochs),
        covers=True,
    ),
    _mutation(
        "an incarnation used twice",
        brokers,
        "greatest_incarnation",
        _only_the_disk_knows,
        focus="disk lost",
        **TWO_OF_THREE,
    ),
    _scripted(
        "the last ISR entry given up", "last-entry-given-up", "NeverEmpty", Patch(wishes, "give_up", _gives_up_the_last)
    ),
    _scripted("give-ups empty the ISR", "isr-emptied", "NeverEmpty", Patch(seats, "_renewed", _empties)),
    _scripted(
        "renewal by a disk that missed a life",
        "disk-missed-a-life",
        LOST,
        Patch(disk, "why_not_intact", _misses_nothing),
    ),
    _scripted("epochs are not persisted", "epochs-forgotten", LOST, Patch(Disk, "start", _forgets_epochs)),
    _mutation(
        "a lost PUT holds the high watermark", SetWriter, "write", _waits_for_ever, focus="call lost", rests=True
    ),
)

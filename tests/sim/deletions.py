"""The replacements of safety rules that are deleted: functions of the core, or of disk, API server and shell here.

Each is what somebody could write who does not know the rule. `mutations` says which of them make a deleted rule.
"""

from dataclasses import replace
from typing import Any

from headrace.core.control import elections
from headrace.core.control.observed import BrokerState, Observed
from headrace.core.log.epochs import EpochEnd, LeaderEpochs
from headrace.core.log.group_commit import GroupCommit
from headrace.core.log.recovery import DiskFacts, ReplicaFacts, why_not_intact
from headrace.core.replication import events, seats
from headrace.core.replication.following import Agreed, AskAgain, BeginAnew, Following, Phase, reconcile
from headrace.core.replication.isr import Ends, Followers, InSyncRules, Isr
from headrace.core.replication.leadership import Leadership
from headrace.core.replication.seats import SeenEpochs
from headrace.core.replication.set_writer import SetWriter
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.resources.topic import Durability
from headrace.core.types import Incarnation, LeaderEpoch, Offset, Seat
from headrace_broker.partition.shell import PartitionShell
from tests.sim.api import Api
from tests.sim.calling import BrokerCaller
from tests.sim.disk import NO_EPOCH_SEEN, NO_LIFE, Disk, Log
from tests.sim.life import Life

# -- who may be in sync ----------------------------------------------------------------------------------------------


def landed(self: Isr) -> frozenset[Seat]:
    return frozenset(self.state.isr)


def early(self: Isr) -> frozenset[Seat]:
    landed = frozenset(self.state.isr)
    return landed if self.pending is None else (landed | self.pending.added) - self.pending.removed


def floor_1(state: PartitionState, min_insync_replicas: int) -> int:
    return 1


def joins_before_the_epoch(
    self: Followers, seat: Seat, state: PartitionState, high_watermark: Offset, rules: InSyncRules
) -> bool:
    vote = self.vote(seat, rules.durability)
    if vote is None or seat in state.isr or seat.broker not in state.replicas:
        return False
    return vote >= high_watermark


def joins_below(self: Followers, seat: Seat, state: PartitionState, high_watermark: Offset, rules: InSyncRules) -> bool:
    vote = self.vote(seat, rules.durability)
    return vote is not None and seat not in state.isr and seat.broker in state.replicas


# -- truncation ------------------------------------------------------------------------------------------------------


def never(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd) -> Agreed:
    return Agreed(log_end, "it never truncates")


def one_round(epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd) -> Agreed | BeginAnew:
    verdict = reconcile(epochs, log_start, log_end, answer)
    return Agreed(verdict.end, verdict.reason) if isinstance(verdict, AskAgain) else verdict


def goes_on_from_its_start(
    epochs: LeaderEpochs, log_start: Offset, log_end: Offset, answer: EpochEnd
) -> AskAgain | Agreed | BeginAnew:
    verdict = reconcile(epochs, log_start, log_end, answer)
    is_parted = isinstance(verdict, BeginAnew) and verdict.offset < log_start
    return Agreed(log_start, verdict.reason) if is_parted else verdict


def votes_at_once(self: Following) -> list[events.Effect]:
    return [events.Report(self.leader_epoch, self._ends)] if self.phase is Phase.FETCHING else []


def to_high_watermark(self: Following) -> list[events.Effect]:
    if self.high_watermark >= self._log.log_end_offset:
        return self._fetch()
    verdict = Agreed(self.high_watermark, "above the high watermark")
    self._begin_cut(verdict.end)
    self._cut = verdict
    return [events.Truncate(verdict.end, verdict.reason)]


def once_in_an_epoch(self: Following) -> list[events.Effect]:
    if getattr(self, "_asked_in", None) == self.leader_epoch:
        return self._fetch()
    self._asked_in = self.leader_epoch  # type: ignore[attr-defined]
    return _ASK(self)


_ASK = Following._ask


def serves_anyone(self: PartitionShell, leader_epoch: LeaderEpoch) -> None:
    """Whether it leads in that epoch or not."""


def only_its_present_seat(self: Following, state: PartitionState) -> list[events.Effect]:
    effects = _NAMED(self, state)
    self._is_in_sync = self.me in state.isr
    return effects


_NAMED = Following._named


# -- votes -----------------------------------------------------------------------------------------------------------


def log_end(self: Ends, durability: object) -> Offset:
    return self.log_end


def own_log_end(self: GroupCommit) -> Offset:
    return self.log_end


def truncating_carelessly(self: GroupCommit, end: Offset) -> None:
    self.log_end, self.durable_end = min(self.log_end, end), min(self.durable_end, end)
    self._truncating = True


def recovers_without_sync(self: Log) -> None:
    self.epochs.cut(self.log_end_offset)


def heard_whatever_epoch(self: Leadership, event: Any, now_ms: int) -> list[events.Effect]:
    if isinstance(event, events.FollowerReported):
        event = replace(event, leader_epoch=self.leader_epoch)
    return _HEARD(self, event, now_ms)


_HEARD = Leadership._heard


def vote_of_any_life(self: Followers, seat: Seat, durability: Durability) -> Offset | None:
    if seat not in self._by_seat:
        return None
    votes = [_VOTE(self, each, durability) for each in self._by_seat if each.broker == seat.broker]
    return max((vote for vote in votes if vote is not None), default=None)


_VOTE = Followers.vote


# -- seats -----------------------------------------------------------------------------------------------------------


def always_intact(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    return _RENEWED(state, me, replace(log, damage="", void_before=NO_LIFE))


_RENEWED = seats._renewed


def renews_leadership(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    claim = _RENEWED(state, me, log)
    leads = state.leader is not None and state.leader.broker == me.broker and me in (claim.state.isr if claim else ())
    return replace(claim, state=replace(claim.state, leader=me)) if leads and claim is not None else claim


def only_lower_epochs(self: SeenEpochs, state: PartitionState) -> str:
    return _REGRESSION(self, replace(state, leader=None))


_REGRESSION = SeenEpochs.regression


def empties(state: PartitionState, me: Seat, log: seats.LogFacts) -> Any:
    claim = _RENEWED(state, me, log)
    old = [seat for seat in state.isr if seat.broker == me.broker and seat != me]
    if claim is None and old and log.damage:
        return seats.Claim(seats._next(state, leader=state.leader, isr=()), "given up")
    return claim


def gives_up_the_last(state: PartitionState, me: Seat) -> PartitionState | None:
    isr = tuple(seat for seat in state.isr if seat != me)
    leader = None if state.leader == me else state.leader
    return None if (leader, isr) == (state.leader, state.isr) else seats._next(state, leader=leader, isr=isr)


def an_empty_disk_will_do(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return ""


def memory_never_fails(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return why_not_intact(replace(disk_facts, same_boot=True), replica)


def misses_nothing(disk_facts: DiskFacts, replica: ReplicaFacts) -> str:
    return why_not_intact(replace(disk_facts, known_incarnation=NO_LIFE), replica)


def forgets_epochs(self: Disk, known: Incarnation, durability: Durability) -> DiskFacts:
    self.seen_epoch = NO_EPOCH_SEEN
    return _START(self, known, durability)


_START = Disk.start


def void_is_forgotten(state: PartitionState, me: Seat, log: seats.LogFacts) -> str:
    return _WHY_VOID(state, me, replace(log, void_before=NO_LIFE))


_WHY_VOID = seats.why_void


def later_seats_are_good(self: Life, found: PartitionSet, index: int) -> None:
    """Seats are judged when the log is opened: what turns up later is taken for good."""
    _READ_FIRST(self, found, index)
    if self._facts is not None and all(seat.broker != self.broker for seat in found.partitions[0].isr):
        self._facts = replace(self._facts, void_before=NO_LIFE)


_READ_FIRST = Life.read_first


def counts_void(self: Observed, seat: Seat | None) -> bool:
    return seat is not None and seat.broker in self.brokers and self.state_of(seat.broker) is BrokerState.READY


def elects_void(self: elections.Elections, state: PartitionState, leader: Seat, *rest: Any) -> Any:
    """Elect a void seat, as if each start renewed all that its broker held."""
    now = self.observed.brokers[leader.broker].seat
    isr = tuple(now if seat.broker == now.broker else seat for seat in state.isr)
    return replace(_ELECT(self, state, leader, *rest), leader=now, isr=isr)


_ELECT = elections.Elections._elect


def only_the_disk_knows(me: object, on_lease: Incarnation, sets: object) -> Incarnation:
    return NO_LIFE


# -- writes ----------------------------------------------------------------------------------------------------------


def unknown_is_failed(self: SetWriter) -> None:
    self._settle(self.known)
    self._in_flight = False


def unknown_is_done(self: SetWriter) -> None:
    """Take what was tried last as done."""
    self._in_flight = False
    for number, isr in self._isrs.items():
        if isr.pending is not None:
            landed = (frozenset(isr.state.isr) | isr.pending.added) - isr.pending.removed
            state = replace(isr.state, isr=tuple(sorted(landed)), partition_epoch=isr.pending.partition_epoch)
            self._isrs[number] = Isr(state)


def conflict_is_failure(self: BrokerCaller) -> None:
    self.life.see(unknown_is_failed)


def any_version(self: SetWriter, partition_set: PartitionSet, *, based_on: str) -> None:
    if based_on == self.known.metadata.resource_version == partition_set.metadata.resource_version:
        self._settle(partition_set)
    _READ(self, partition_set, based_on=based_on)


def from_before(self: SetWriter, partition_set: PartitionSet, *, based_on: str) -> None:
    if partition_set.metadata.resource_version not in (based_on, self.known.metadata.resource_version):
        based_on = self.known.metadata.resource_version
    elif partition_set.metadata.resource_version != based_on:
        self._settle(partition_set)
    _READ(self, partition_set, based_on=based_on)


_READ = SetWriter.read


def cached(self: Api) -> PartitionSet:
    return self.history[max(0, len(self.history) - 2)]


def waits_for_ever(self: SetWriter, wanted: Any) -> PartitionSet | None:
    return None if self.is_undecided else _WRITE(self, wanted)


_WRITE = SetWriter.write

"""The writes of a broker to one PartitionSet: the states that it wants there, and the compare-and-set that writes them.

    the topic is being deleted, its data is gone ──> surrender: out of the replicas
    the disk failed ──> every seat is given up, but for the last entry of an ISR
    a seat of an older life ──> renewed where the log is intact, else given up (`claim`)
    it stops, or its disk is full ──> it steps down where enough others are in sync and ready
    it leads ──> the ISR that `Replica.wanted_isr` asks for

    settled ── write ──> writing ── 200 ──> settled
                            └── anything else ──> undecided ── read, then write again on the same version ──> writing
    writing, undecided ── a newer state is seen, or a read that began meanwhile shows another version ──> settled
    undecided ── a read finds that the object is gone ──> settled
    any ── a read shows older epochs than are known ──> regressed ── a state above all that is known ──> settled

`wanted_states` is level-triggered: it is asked again and again with the set as it is known to have landed.
`SetWriter` makes one PUT of the answer. A PUT that timed out may land at any later time, while the version that it was
based on is the present one. It is decided by its own 200, by a state with a greater partition epoch, or by a read (a
GET without resourceVersion) that began after it and shows another version. A conflict decides nothing: the first of
two attempts may have caused it. Until then the next attempt goes out on the same version, with greater partition
epochs. A read that shows an older state than one that landed proves that the API server's data went
back: nothing is believed or written until `headrace cluster recover` has set epochs above what is known.

Invariants: one PUT is in flight; a write is forgotten only once its version is known to be over; no partition epoch of
`known` ever falls. One `SetWriter` for each PartitionSet that a broker has a part of. Called by
`headrace_broker.cluster` and by the simulator.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.core.replication.isr import Isr
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import (
    Claim,
    LogFacts,
    claim,
    give_up,
    older_partitions,
    step_down,
    supersedes,
    surrender,
)
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import PartitionEpoch, PartitionId, PartitionKey, Seat, TopicUid

ISR_LOOK_INTERVAL_MS = 2_500
"""The interval at which a leader checks its ISR while no replica is missing: a lagging follower is noticed so late."""


@dataclass(frozen=True, slots=True)
class BrokerSituation:
    """The broker, as far as all its partitions are concerned."""

    me: Seat
    ready: Collection[Seat]
    """The seats of all brokers whose Leases are live, that do not drain and have room for records."""
    now_ms: int
    failed: str = ""
    """The reason why nothing on its disk can be trusted any more, as a clause."""
    leaving: str = ""
    """The reason why its replicas had better not be waited for, as a clause: it stops, or its disk is full."""
    regressed: Collection[TopicUid] = ()
    """The topics of which some broker knows later states than the API server: nothing is written upon older ones."""
    claims: bool = True
    """Whether the broker takes what it may: it does not while it stops."""


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """The facts of this broker's replica of one partition."""

    holding: Holding
    log: LogFacts | None = None
    """The facts of the log, while it is open."""
    min_insync_replicas: int = 1
    leader: "Leader | None" = None
    """The replica, when it is time to ask it which seats it wants in sync."""


class Leader(Protocol):
    """A `Replica`, which may lead."""

    @property
    def leads(self) -> bool: ...
    @property
    def state(self) -> PartitionState | None: ...
    def wanted_isr(self, live: Collection[Seat], now_ms: int) -> tuple[Seat, ...]: ...


@dataclass(frozen=True, slots=True)
class WantedState:
    state: PartitionState
    reason: str
    loss: str = ""
    """The loss that the Topic's owner must be told of once the state has landed."""
    is_claim: bool = False
    """Whether this is the claim of a broker that comes back: it is not ready before the claim has landed."""


def wanted_states(
    partition_set: PartitionSet, local: Mapping[PartitionId, LocalReplica], situation: BrokerSituation
) -> list[WantedState]:
    """Return the states that this broker wants; `partition_set` is the newest that is known to have landed."""
    if partition_set.topic_uid in situation.regressed:
        return []
    if partition_set.deleting:
        wished = (_surrendered(state, local.get(state.id), situation) for state in partition_set.partitions)
    else:
        # While one log of the set is still being recovered its claims wait: a restart writes each set once.
        waits = not situation.claims or any(each.holding is Holding.BUSY for each in local.values())
        held = ((state, local[state.id]) for state in partition_set.partitions if state.id in local)
        wished = (_wanted_state(state, here, situation, claims=not waits) for state, here in held)
    return [wish for wish in wished if wish is not None]


def _surrendered(state: PartitionState, here: LocalReplica | None, situation: BrokerSituation) -> WantedState | None:
    surrendered = surrender(state, situation.me.broker) if here is None else None
    return None if surrendered is None else WantedState(surrendered, f"partition {state.id}: its data is deleted")


def _wanted_state(
    state: PartitionState, here: LocalReplica, situation: BrokerSituation, *, claims: bool
) -> WantedState | None:
    label = f"partition {state.id}"
    if situation.failed:
        given = give_up(state, situation.me)
        return None if given is None else WantedState(given, f"{label}: {situation.failed}")
    claimed = claim(state, situation.me, here.log) if here.log is not None and claims else None
    if isinstance(claimed, Claim):
        loss = f"{label}: {claimed.loss}" if claimed.loss else ""
        return WantedState(claimed.state, f"{label}: {claimed.reason}", loss, is_claim=True)
    stepped = step_down(state, situation.me, situation.ready, here.min_insync_replicas) if situation.leaving else None
    if stepped is not None:
        return WantedState(stepped, f"{label}: {situation.leaving}")
    return _wanted_isr_state(state, here.leader, situation) if here.leader is not None else None


def _wanted_isr_state(state: PartitionState, leader: Leader, situation: BrokerSituation) -> WantedState | None:
    # A leader that has not heard of this state yet judges another one.
    if not leader.leads or leader.state != state:
        return None
    isr = leader.wanted_isr(situation.ready, situation.now_ms)
    if set(isr) == set(state.isr):
        return None
    gone, new = _names(set(state.isr) - set(isr)), _names(set(isr) - set(state.isr))
    changes = [*([f"{gone} out of sync"] if gone else []), *([f"{new} in sync"] if new else [])]
    wanted = replace(state, isr=isr, partition_epoch=PartitionEpoch(state.partition_epoch + 1))
    return WantedState(wanted, f"partition {state.id}: {', '.join(changes)}")


def _names(seats: Iterable[Seat]) -> str:
    return " and ".join(str(seat) for seat in sorted(seats))


def isr_changes(before: PartitionSet, after: PartitionSet, me: Seat) -> tuple[int, int]:
    """Return how many ISRs under this leader have shrunk, and how many have grown, whoever wrote that."""
    led = {state.id: set(state.isr) for state in before.partitions if state.leader == me}
    changes = [(led[state.id], set(state.isr)) for state in after.partitions if state.id in led and state.leader == me]
    return sum(bool(old - new) for old, new in changes), sum(bool(new - old) for old, new in changes)


class IsrLooks:
    """The times when the ISR of each led partition is looked at next: soon while a member is missing, else seldom.

    An ISR that is whole changes only when a member has lagged for long, so that being late by a part of
    `replica_lag_ms_max` costs little, and a thousand idle partitions cost next to nothing. All of them are due at the
    same moments: a set is looked at as a whole.
    """

    def __init__(self) -> None:
        self._due_ms: dict[PartitionKey, int] = {}

    def is_due(self, key: PartitionKey, now_ms: int) -> bool:
        return self._due_ms.get(key, 0) <= now_ms

    def looked(self, key: PartitionKey, state: PartitionState, ready: Collection[Seat], now_ms: int) -> None:
        """Note a look at the ISR of `state`: a whole ISR of brokers that are ready can wait."""
        is_whole = len(state.isr) == len(state.replicas) and all(seat in ready for seat in state.isr)
        self._due_ms[key] = (now_ms // ISR_LOOK_INTERVAL_MS + 1) * ISR_LOOK_INTERVAL_MS if is_whole else 0

    def forget(self, key: PartitionKey) -> None:
        """Forget a partition: it is looked at at once when it is led again."""
        self._due_ms.pop(key, None)


class SetWriter:
    def __init__(self, known: PartitionSet) -> None:
        self.known = known
        """The newest state that is known to have landed; attempts are based on its version."""
        self.regressed: frozenset[PartitionId] = frozenset()
        """The partitions of which the API server shows something else than has landed, under no greater epoch."""
        self._isrs = {state.id: Isr(state) for state in known.partitions}
        self._in_flight = False
        self._must_read = False

    @property
    def is_writing(self) -> bool:
        return self._in_flight

    @property
    def is_regressed(self) -> bool:
        return bool(self.regressed)

    @property
    def is_undecided(self) -> bool:
        """Return whether something may still land: write again, or read."""
        return any(isr.pending is not None for isr in self._isrs.values())

    @property
    def must_read(self) -> bool:
        """Return whether a read must come first: the last attempt has no outcome, and nobody has looked since."""
        return self._must_read and not self._in_flight

    def isr(self, partition: PartitionId) -> Isr:
        return self._isrs[partition]

    def write(self, wanted: Iterable[PartitionState], *, regressed: Collection[TopicUid] = ()) -> PartitionSet | None:
        """Return the set to PUT so that these states become true; None where nothing is to be written, or can be now.

        Partitions that are undecided and not wanted otherwise are written as they were last known. The partition epochs
        of `wanted` are ignored. Nothing is written of topics that some broker knows to be `regressed`, not even again.
        """
        if self._in_flight or self.is_regressed or self.known.topic_uid in regressed:
            return None
        states = {state.id: state for state in wanted}
        undecided = {number: isr.state for number, isr in self._isrs.items() if isr.pending is not None}
        changed = [self._attempt(state) for state in (undecided | states).values()]
        if not changed:
            return None
        self._in_flight = True
        return self.known.with_partitions(*changed)

    def landed(self, partition_set: PartitionSet) -> None:
        """Note a 200: this was written, with its new version. A watch may have shown it before, and more."""
        self._in_flight = self._must_read = False
        self.seen(partition_set)

    def unanswered(self) -> None:
        """Note a time-out, a broken connection, a conflict, or a 5xx: whether the write landed, or will, is not
        known."""
        self._in_flight, self._must_read = False, True

    def seen(self, partition_set: PartitionSet) -> None:
        """Note a set from a watch, which may be late and know nothing of later states: only greater epochs count.

        With the same partition epochs, only the rest of the set can be new: it is taken over where nothing depends on
        `known`.
        """
        if older_partitions(partition_set, self.known):
            return
        is_newer = any(supersedes(state, self._state(state.id)) for state in partition_set.partitions)
        if is_newer or not (self._in_flight or self.is_undecided):
            self._settle(partition_set)

    def read(self, partition_set: PartitionSet, *, based_on: str) -> None:
        """Note a set from a GET without resourceVersion that began while `known` had the version `based_on`.

        No PUT leaves while such a GET is under way: the owner has one call at a time.
        """
        self._must_read = False
        version = partition_set.metadata.resource_version
        if based_on != self.known.metadata.resource_version or version == based_on:
            return
        self.regressed = older_partitions(partition_set, self.known)
        if not self.regressed:
            self._settle(partition_set)

    def gone(self) -> None:
        """Note that a GET without resourceVersion found no object after the last attempt: nothing based on it can
        land."""
        self._settle(self.known)

    def _attempt(self, state: PartitionState) -> PartitionState:
        isr = self._isrs[state.id]
        attempt = replace(state, partition_epoch=isr.next_epoch)
        self._isrs[state.id] = isr.proposing(attempt)
        return attempt

    def _state(self, partition: PartitionId) -> PartitionState | None:
        isr = self._isrs.get(partition)
        return isr.state if isr is not None else None

    def _settle(self, partition_set: PartitionSet) -> None:
        """Note that the version that every attempt was based on is over."""
        self.known, self.regressed, self._must_read = partition_set, frozenset(), False
        self._isrs = {state.id: Isr(state) for state in partition_set.partitions}

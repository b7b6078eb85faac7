"""What a broker wants written into one PartitionSet: everything that it may write, in one place. Pure, level-triggered.

    the topic is being deleted, its data is gone ──> surrender: out of the replicas
    the disk failed ──> every seat is given up, but for the last entry of an ISR
    a seat of an older life ──> renewed where the log is intact, else given up (`claim`)
    it stops, or its disk is full ──> it steps down where enough others are in sync and ready
    it leads ──> the ISR that `Replica.wanted_isr` asks for

Asked again and again with the set as it is known to have landed; what is wanted no longer is not said any more.
`SetWriter` makes one PUT of it. Called by `headrace_broker.coordination`, and by the simulator.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from headrace.core.limits import ISR_LOOK_INTERVAL_MS
from headrace.core.replication.residency import Holding
from headrace.core.replication.seats import Claim, LogFacts, claim, give_up, step_down, surrender
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.slotted import dataclass
from headrace.core.types import PartitionEpoch, PartitionId, PartitionKey, Seat, TopicUid


@dataclass(frozen=True, slots=True)
class Around:
    """The broker, as far as all its partitions are concerned."""

    me: Seat
    ready: Collection[Seat]
    """Of all brokers, whose Leases are live, that do not drain and have room for records."""
    now_ms: int
    failed: str = ""
    """Why nothing on its disk can be trusted any more, as a clause."""
    leaving: str = ""
    """Why its replicas had better not be waited for, as a clause: it stops, or its disk is full."""
    regressed: Collection[TopicUid] = ()
    """Topics of which some broker knows later states than the API server: nothing is written upon older ones."""
    claims: bool = True
    """Whether it takes what it may: not while it stops."""


@dataclass(frozen=True, slots=True)
class Local:
    """What this broker has of a partition, and what is to be known of it."""

    holding: Holding
    log: LogFacts | None = None
    """While it is open."""
    min_insync_replicas: int = 1
    leader: "Leader | None" = None
    """The replica, where it is time to ask it whom it wants in sync."""


class Leader(Protocol):
    """A `Replica`, which may lead."""

    @property
    def leads(self) -> bool: ...
    @property
    def state(self) -> PartitionState | None: ...
    def wanted_isr(self, live: Collection[Seat], now_ms: int) -> tuple[Seat, ...]: ...


@dataclass(frozen=True, slots=True)
class Wish:
    state: PartitionState
    reason: str
    loss: str = ""
    """What the Topic's owner must be told once it has landed."""
    is_claim: bool = False
    """Of a broker that comes back: it is not ready before that has landed."""


def wishes(partition_set: PartitionSet, local: Mapping[PartitionId, Local], around: Around) -> list[Wish]:
    """For `partition_set`, the newest state that is known to have landed."""
    if partition_set.topic_uid in around.regressed:
        return []
    if partition_set.deleting:
        wished = (_surrendered(state, local.get(state.id), around) for state in partition_set.partitions)
    else:
        # While one log of the set is still being recovered its claims wait: a restart writes each set once.
        waits = not around.claims or any(each.holding is Holding.BUSY for each in local.values())
        held = ((state, local[state.id]) for state in partition_set.partitions if state.id in local)
        wished = (_wish(state, here, around, claims=not waits) for state, here in held)
    return [wish for wish in wished if wish is not None]


def _surrendered(state: PartitionState, here: Local | None, around: Around) -> Wish | None:
    surrendered = surrender(state, around.me.broker) if here is None else None
    return None if surrendered is None else Wish(surrendered, f"partition {state.id}: its data is deleted")


def _wish(state: PartitionState, here: Local, around: Around, *, claims: bool) -> Wish | None:
    label = f"partition {state.id}"
    if around.failed:
        given = give_up(state, around.me)
        return None if given is None else Wish(given, f"{label}: {around.failed}")
    claimed = claim(state, around.me, here.log) if here.log is not None and claims else None
    if isinstance(claimed, Claim):
        loss = f"{label}: {claimed.loss}" if claimed.loss else ""
        return Wish(claimed.state, f"{label}: {claimed.reason}", loss, is_claim=True)
    stepped = step_down(state, around.me, around.ready, here.min_insync_replicas) if around.leaving else None
    if stepped is not None:
        return Wish(stepped, f"{label}: {around.leaving}")
    return _isr_wish(state, here.leader, around) if here.leader is not None else None


def _isr_wish(state: PartitionState, leader: Leader, around: Around) -> Wish | None:
    # A leader that has not heard of this state yet judges another one.
    if not leader.leads or leader.state != state:
        return None
    isr = leader.wanted_isr(around.ready, around.now_ms)
    if set(isr) == set(state.isr):
        return None
    gone, new = _names(set(state.isr) - set(isr)), _names(set(isr) - set(state.isr))
    changes = [*([f"{gone} out of sync"] if gone else []), *([f"{new} in sync"] if new else [])]
    wanted = replace(state, isr=isr, partition_epoch=PartitionEpoch(state.partition_epoch + 1))
    return Wish(wanted, f"partition {state.id}: {', '.join(changes)}")


def _names(seats: Iterable[Seat]) -> str:
    return " and ".join(str(seat) for seat in sorted(seats))


def isr_changes(before: PartitionSet, after: PartitionSet, me: Seat) -> tuple[int, int]:
    """How many ISRs under this leader have shrunk, and how many have grown, by whomever that was written."""
    led = {state.id: set(state.isr) for state in before.partitions if state.leader == me}
    changes = [(led[state.id], set(state.isr)) for state in after.partitions if state.id in led and state.leader == me]
    return sum(bool(old - new) for old, new in changes), sum(bool(new - old) for old, new in changes)


class IsrLooks:
    """When the ISR of each led partition is to be looked at next: often while somebody is missing, else seldom.

    An ISR that is whole changes only when a member has lagged for long, so that being late by a part of
    `replica_lag_ms_max` costs little, and a thousand idle partitions cost next to nothing. All of them are due at the
    same moments: a set is looked at as a whole.
    """

    def __init__(self) -> None:
        self._due_ms: dict[PartitionKey, int] = {}

    def is_due(self, key: PartitionKey, now_ms: int) -> bool:
        return self._due_ms.get(key, 0) <= now_ms

    def looked(self, key: PartitionKey, state: PartitionState, ready: Collection[Seat], now_ms: int) -> None:
        """`state` is what it was looked at in: a whole ISR of brokers that are ready can wait."""
        is_whole = len(state.isr) == len(state.replicas) and all(seat in ready for seat in state.isr)
        self._due_ms[key] = (now_ms // ISR_LOOK_INTERVAL_MS + 1) * ISR_LOOK_INTERVAL_MS if is_whole else 0

    def forget(self, key: PartitionKey) -> None:
        """It is to be looked at at once when it is led again."""
        self._due_ms.pop(key, None)

"""Which partitions live on this broker: what is to be opened, deleted, set aside. Pure and level-triggered.

    nothing ──> open
    open, its set was deleted and made anew ──> close ──> open  (as if it had been seen to be gone)
    on disk, set is deleting ──> delete          (then `wishes` surrender the seats, so that the operator can go on)
    on disk, moved to others while this life looked ──> delete
    on disk, moved to others while it was away ──> orphan ── for too long ──> purge    (else what is placed elsewhere
                                                               is left alone: the API's data may have gone back)
    on disk, in no set       ──> orphan                  (never deleted: the API's data may have gone back)
    orphaned, a set has it   ──> restore ──> open            (what was moved to others: once it is placed here again)
    orphaned, another topic goes on with it, here ──> adopt ──> open         (never opened empty beside it)
    orphaned for too long    ──> purge                   (while no set names the uid, no topic has it or claims it)

Called by `headrace_broker.coordination` with everything that is known whenever anything changes, only once the lists
are complete; correct after any prefix of its own actions, since each of them changes what is observed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum

from headrace.core.replication.seats import LogFacts, Regressed, claim
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.slotted import dataclass
from headrace.core.types import PartitionKey, Seat, SetUid, TopicName, TopicUid


class Holding(Enum):
    """What this broker has of a partition."""

    ORPHANED = "set aside"
    RESTING = "on disk, not open"
    BUSY = "an action on it is under way"
    OPEN = "open"
    BROKEN = "on disk, cannot be opened"


_SETTLED = (Holding.RESTING, Holding.OPEN, Holding.BROKEN)


@dataclass(frozen=True, slots=True)
class Observed:
    me: Seat
    sets: Sequence[PartitionSet]
    """Of every topic of the cluster."""
    held: Mapping[PartitionKey, Holding]
    logs: Mapping[PartitionKey, LogFacts]
    """Of every open partition ..."""
    opened_for: Mapping[PartitionKey, SetUid]
    """... and which set asked for that."""
    described: Collection[TopicUid]
    """Topics whose spec is known; a log is not opened without its settings."""
    overdue: Collection[PartitionKey] = ()
    """Orphans that were kept for as long as they are promised, and that may be deleted then."""
    going: Collection[PartitionKey] = ()
    """What this broker was seen to give away (`removing`) when it was last seen to hold a place in it ..."""
    moved_in_sight: Collection[PartitionKey] = ()
    """... and of that, what this life saw to be moved by whoever leads it still: nothing of it can be missing there."""
    kept: Collection[TopicUid] = ()
    """Topics that there are, and those whose data a topic claims: no orphan of them is deleted, however old it is."""


@dataclass(frozen=True, slots=True)
class Open:
    key: PartitionKey
    topic: TopicName
    state: PartitionState
    """As it was observed: the set may be gone from the view when the log is opened."""
    asked_by: SetUid
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """Keep the data where it is."""

    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Delete:
    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Orphan:
    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete what is orphaned, if its retention is still over when that begins."""

    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Restore:
    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """What was orphaned as `old` is `key` from now on."""

    key: PartitionKey
    old: PartitionKey
    state: PartitionState
    """The first of `key`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the Topic's owner: nothing can be done from here."""

    key: PartitionKey
    topic: TopicName
    reason: str


Action = Open | Close | Delete | Orphan | Purge | Restore | Adopt | Report


def plan_residency(observed: Observed) -> list[Action]:
    """What to do now. Partitions that are busy are left alone until they are not."""
    actions: list[Action] = []
    for partition_set in observed.sets:
        if partition_set.deleting:
            actions += _plan_deletion(partition_set, observed)
        else:
            # What is to be closed is looked at again when it is.
            actions += [*_outlived(partition_set, observed)] or _plan(partition_set, observed)
    return [*actions, *_unknown_to_the_api(observed)]


def _plan(partition_set: PartitionSet, observed: Observed) -> list[Action]:
    return [
        *_restored(partition_set, observed),
        *_adopted(partition_set, observed),
        *_opened(partition_set, observed),
        *_vacated(partition_set, observed),
        *_regressed(partition_set, observed),
    ]


def _outlived(partition_set: PartitionSet, observed: Observed) -> Iterator[Close]:
    """Opened for a set that is gone, though nobody here may have seen it go.

    What its replica has heard of that set, and of its epochs, says nothing about this one: it would take every state of
    it for old news, and go on as if there were none.
    """
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        if observed.held.get(key) is Holding.OPEN and observed.opened_for[key] != partition_set.uid:
            yield Close(key, f"{partition_set.metadata.name} was deleted and made anew")


def _restored(partition_set: PartitionSet, observed: Observed) -> Iterator[Restore]:
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        is_given_away = (
            key in observed.going and observed.me.broker not in state.replicas and not partition_set.deleting
        )
        if observed.held.get(key) is Holding.ORPHANED and not is_given_away:
            yield Restore(key, f"topic {partition_set.topic_name} is back")


def _adopted(partition_set: PartitionSet, observed: Observed) -> Iterator[Adopt]:
    for state, old in _yet_to_adopt(partition_set, observed):
        is_back = any(old.uid == each.topic_uid for each in observed.sets)
        if observed.held[old] is Holding.ORPHANED and not is_back:
            reason = f"{partition_set.topic_name} goes on with it"
            yield Adopt(partition_set.key(state.id), old, state, reason)


def _yet_to_adopt(partition_set: PartitionSet, observed: Observed) -> Iterator[tuple[PartitionState, PartitionKey]]:
    """What is placed here and is held here under its old uid alone."""
    adopted = partition_set.adopted
    for state in partition_set.partitions if adopted else ():
        old, is_placed = adopted.get(state.id), observed.me.broker in state.replicas
        if is_placed and old is not None and old in observed.held and partition_set.key(state.id) not in observed.held:
            yield state, old


def _opened(partition_set: PartitionSet, observed: Observed) -> Iterator[Open]:
    if partition_set.topic_uid not in observed.described:
        return
    waiting = {state.id for state, _ in _yet_to_adopt(partition_set, observed)}
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        is_placed = observed.me.broker in state.replicas and state.id not in waiting
        if is_placed and observed.held.get(key) in (None, Holding.RESTING):
            reason = f"{partition_set.metadata.name} places it here"
            yield Open(key, partition_set.topic_name, state, partition_set.uid, reason)


def _vacated(partition_set: PartitionSet, observed: Observed) -> Iterator[Delete | Orphan | Purge]:
    """Deleted at once only where others surely have all of it: if the API went back, this may be the only copy."""
    moved = f"{partition_set.metadata.name} has moved it to other brokers"
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        is_elsewhere = observed.me.broker not in state.replicas and state.leader is not None
        if key not in observed.going or not is_elsewhere:
            continue
        holding = observed.held.get(key)
        if holding in _SETTLED and key in observed.moved_in_sight:
            yield Delete(key, moved)
        elif holding in _SETTLED:
            yield Orphan(key, f"{moved} out of sight: kept aside for the orphan retention, or until it is placed here")
        elif holding is Holding.ORPHANED and key in observed.overdue:
            yield Purge(key, f"{moved}, and not back within the orphan retention")


def _regressed(partition_set: PartitionSet, observed: Observed) -> Iterator[Report]:
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        claimed = claim(state, observed.me, observed.logs[key]) if key in observed.logs else None
        if isinstance(claimed, Regressed):
            yield Report(key, partition_set.topic_name, claimed.reason)


def _plan_deletion(partition_set: PartitionSet, observed: Observed) -> list[Action]:
    reason = f"topic {partition_set.topic_name} is being deleted"
    actions: list[Action] = list(_restored(partition_set, observed))
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        if observed.held.get(key) in _SETTLED:
            actions.append(Delete(key, reason))
    return actions


def _unknown_to_the_api(observed: Observed) -> Iterator[Orphan | Purge]:
    known = {partition_set.key(state.id) for partition_set in observed.sets for state in partition_set.partitions}
    uids = {partition_set.topic_uid for partition_set in observed.sets}
    for key, holding in observed.held.items():
        if key in known:
            continue
        if holding in _SETTLED:
            yield Orphan(
                key,
                "no PartitionSet names it: kept aside until one does, or its topic is gone for the orphan retention",
            )
        elif holding is Holding.ORPHANED and key in observed.overdue and key.uid not in {*uids, *observed.kept}:
            yield Purge(key, "its topic has not returned within the orphan retention")

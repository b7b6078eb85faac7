"""The partitions that live on this broker: what to open, delete, set aside, and what was given away. Level-triggered.

    nothing ──> open
    open, its set was deleted and made anew ──> close ──> open  (as if it had been seen to be gone)
    on disk, set is deleting ──> delete          (then its seats are surrendered, so that the operator can go on)
    on disk, moved to others while this life looked ──> delete
    on disk, moved to others while it was away ──> orphan ── for too long ──> purge
    on disk, in no set       ──> orphan                  (never deleted: the API's data may have gone back)
    orphaned, a set has it   ──> restore ──> open            (what was moved to others: once it is placed here again)
    orphaned, another topic goes on with it, here ──> adopt ──> open         (never opened empty beside it)
    orphaned for too long    ──> purge                   (while no set names the uid, no topic has it or claims it)

The file `giving-away` notes with its partition epoch each partition here that `removing` names this broker for; one
that is led elsewhere in a later epoch was given away. Without such a note, data that the API server places elsewhere
is kept, because the API's own data may have gone back. The note outlives the process and does not say why the replica
was dropped (`cluster recover` may have done it), so the data is deleted at once only where this life saw the move to
its end (`Leaving`).

Called by `headrace_broker.cluster` whenever anything changes, once the lists are complete; correct after any
prefix of its own actions, since each of them changes what is observed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headrace.core.log.checkpoints import DamagedFileError, seal, unseal
from headrace.core.replication.seats import LogFacts, Regressed, claim
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import (
    BrokerId,
    LeaderEpoch,
    PartitionEpoch,
    PartitionId,
    PartitionKey,
    Seat,
    SetUid,
    TopicName,
    TopicUid,
)

GIVING_AWAY_FILE: Final = "giving-away"

RemovalNotes = Mapping[PartitionKey, PartitionEpoch]
"""The removals by partition: the epoch in which this broker was first to be removed."""

Leaving = Mapping[PartitionKey, tuple[SetUid, LeaderEpoch]]
"""The set and leader epoch, by partition, in which this life last saw this broker's removal. In memory only."""


def noted_removals(
    before: RemovalNotes, me: BrokerId, sets: Iterable[PartitionSet], held: Collection[PartitionKey]
) -> dict[PartitionKey, PartitionEpoch]:
    """Return the removals to remember, now that `sets` are seen; `held` is everything that is on the disk."""
    notes = {key: epoch for key, epoch in before.items() if key in held}
    for partition_set in sets:
        for state in partition_set.partitions:
            key = partition_set.key(state.id)
            if me in state.removing:
                notes.setdefault(key, state.partition_epoch)
            elif me in state.replicas:
                notes.pop(key, None)
    return notes


def given_away(notes: RemovalNotes, sets: Iterable[PartitionSet]) -> frozenset[PartitionKey]:
    """Return the noted partitions of which a set shows what has become of them since."""
    states = ((each.key(state.id), state) for each in sets for state in each.partitions)
    return frozenset(key for key, state in states if key in notes and state.partition_epoch > notes[key])


def seen_leaving(
    before: Leaving, me: BrokerId, sets: Iterable[PartitionSet], regressed: Collection[TopicUid]
) -> dict[PartitionKey, tuple[SetUid, LeaderEpoch]]:
    """Return the removals that this life has seen, with `sets`; none of topics whose metadata went back."""
    leaving: dict[PartitionKey, tuple[SetUid, LeaderEpoch]] = {}
    for partition_set in sets:
        for state in partition_set.partitions:
            key = partition_set.key(state.id)
            if partition_set.topic_uid in regressed:
                continue
            if me in state.removing:
                leaving[key] = partition_set.uid, state.leader_epoch
            elif key in before and me not in state.replicas:
                leaving[key] = before[key]
    return leaving


def moved_in_sight(leaving: Leaving, sets: Iterable[PartitionSet]) -> frozenset[PartitionKey]:
    """Return the partitions that the same leader keeps, with all that is committed; `cluster recover` raises the epoch.

    A set that was deleted and made anew may show, in the same epoch, a state that never was.
    """
    states = ((each, state) for each in sets for state in each.partitions)
    shown = ((each.key(state.id), (each.uid, state.leader_epoch)) for each, state in states)
    return frozenset(key for key, seen in shown if leaving.get(key) == seen)


def format_giving_away(notes: RemovalNotes) -> bytes:
    """Return a line for each partition: uid, partition, partition epoch."""
    return seal(GIVING_AWAY_FILE, [f"{key.uid} {key.partition} {epoch}" for key, epoch in notes.items()])


def parse_giving_away(content: bytes) -> dict[PartitionKey, PartitionEpoch]:
    """Parse the notes. Raises DamagedFileError."""
    lines = unseal(GIVING_AWAY_FILE, content)
    try:
        rows = [line.split(" ") for line in lines]
        return {PartitionKey(TopicUid(uid), PartitionId(int(n))): PartitionEpoch(int(epoch)) for uid, n, epoch in rows}
    except ValueError as error:
        raise DamagedFileError(f"{lines[:3]} are not rows of a uid, a partition and an epoch") from error


class Holding(Enum):
    """The data that this broker has of a partition."""

    ORPHANED = "set aside"
    RESTING = "on disk, not open"
    BUSY = "an action on it is under way"
    OPEN = "open"
    BROKEN = "on disk, cannot be opened"


_SETTLED = (Holding.RESTING, Holding.OPEN, Holding.BROKEN)


@dataclass(frozen=True, slots=True)
class ObservedPartitions:
    me: Seat
    sets: Sequence[PartitionSet]
    """The sets of every topic of the cluster."""
    held: Mapping[PartitionKey, Holding]
    logs: Mapping[PartitionKey, LogFacts]
    """The facts of every open log ..."""
    opened_for: Mapping[PartitionKey, SetUid]
    """... and the set that each was opened for."""
    described: Collection[TopicUid]
    """The topics whose spec is known; a log is not opened without its settings."""
    overdue: Collection[PartitionKey] = ()
    """The orphans that were kept for as long as is promised, and that may be deleted then."""
    going: Collection[PartitionKey] = ()
    """The partitions that this broker was giving away (`removing`) when it was last seen to hold a place in them ..."""
    moved_in_sight: Collection[PartitionKey] = ()
    """... and those of them that this life saw move while the same leader stayed: nothing can be missing there."""
    kept: Collection[TopicUid] = ()
    """The topics that there are, and those whose data a topic claims: their orphans are never deleted, however old."""


@dataclass(frozen=True, slots=True)
class Open:
    key: PartitionKey
    topic: TopicName
    state: PartitionState
    """The state that was observed: the set may be gone from the view when the log is opened."""
    asked_by: SetUid
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """Close the log, and keep the data where it is."""

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
    """Delete the orphaned data, if its retention is still over when that begins."""

    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Restore:
    key: PartitionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Rename the data that was orphaned as `old`: it is `key` from now on."""

    key: PartitionKey
    old: PartitionKey
    state: PartitionState
    """The first state of `key`."""
    reason: str


@dataclass(frozen=True, slots=True)
class ReportRegressed:
    """Tell the Topic's owner that this broker can do nothing."""

    key: PartitionKey
    topic: TopicName
    reason: str


Action = Open | Close | Delete | Orphan | Purge | Restore | Adopt | ReportRegressed


def plan_residency(observed: ObservedPartitions) -> list[Action]:
    """Return the actions for now. Partitions that are busy are left alone until they are not."""
    actions: list[Action] = []
    for partition_set in observed.sets:
        if partition_set.deleting:
            actions += _plan_deletion(partition_set, observed)
        else:
            # A partition that is to be closed is looked at again when it is.
            actions += [*_outlived(partition_set, observed)] or _plan(partition_set, observed)
    return [*actions, *_unknown_to_the_api(observed)]


def _plan(partition_set: PartitionSet, observed: ObservedPartitions) -> list[Action]:
    return [
        *_restored(partition_set, observed),
        *_adopted(partition_set, observed),
        *_opened(partition_set, observed),
        *_vacated(partition_set, observed),
        *_regressed(partition_set, observed),
    ]


def _outlived(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[Close]:
    """Close what was opened for a set that is gone, though nobody here may have seen it go.

    The epochs that its replica has seen in that set mean nothing in this one: the replica would take every state of
    this set for old news, and go on as if there were none.
    """
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        if observed.held.get(key) is Holding.OPEN and observed.opened_for[key] != partition_set.uid:
            yield Close(key, f"{partition_set.metadata.name} was deleted and made anew")


def _restored(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[Restore]:
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        is_given_away = (
            key in observed.going and observed.me.broker not in state.replicas and not partition_set.deleting
        )
        if observed.held.get(key) is Holding.ORPHANED and not is_given_away:
            yield Restore(key, f"topic {partition_set.topic_name} is back")


def _adopted(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[Adopt]:
    for state, old in _yet_to_adopt(partition_set, observed):
        is_back = any(old.uid == each.topic_uid for each in observed.sets)
        if observed.held[old] is Holding.ORPHANED and not is_back:
            reason = f"{partition_set.topic_name} goes on with it"
            yield Adopt(partition_set.key(state.id), old, state, reason)


def _yet_to_adopt(
    partition_set: PartitionSet, observed: ObservedPartitions
) -> Iterator[tuple[PartitionState, PartitionKey]]:
    """Return the partitions that are placed here and held here under their old uid alone."""
    adopted = partition_set.adopted
    for state in partition_set.partitions if adopted else ():
        old, is_placed = adopted.get(state.id), observed.me.broker in state.replicas
        if is_placed and old is not None and old in observed.held and partition_set.key(state.id) not in observed.held:
            yield state, old


def _opened(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[Open]:
    if partition_set.topic_uid not in observed.described:
        return
    waiting = {state.id for state, _ in _yet_to_adopt(partition_set, observed)}
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        is_placed = observed.me.broker in state.replicas and state.id not in waiting
        if is_placed and observed.held.get(key) in (None, Holding.RESTING):
            reason = f"{partition_set.metadata.name} places it here"
            yield Open(key, partition_set.topic_name, state, partition_set.uid, reason)


def _vacated(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[Delete | Orphan | Purge]:
    """Delete at once only where others surely have all of it: if the API went back, this may be the only copy."""
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


def _regressed(partition_set: PartitionSet, observed: ObservedPartitions) -> Iterator[ReportRegressed]:
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        claimed = claim(state, observed.me, observed.logs[key]) if key in observed.logs else None
        if isinstance(claimed, Regressed):
            yield ReportRegressed(key, partition_set.topic_name, claimed.reason)


def _plan_deletion(partition_set: PartitionSet, observed: ObservedPartitions) -> list[Action]:
    reason = f"topic {partition_set.topic_name} is being deleted"
    actions: list[Action] = list(_restored(partition_set, observed))
    for state in partition_set.partitions:
        key = partition_set.key(state.id)
        if observed.held.get(key) in _SETTLED:
            actions.append(Delete(key, reason))
    return actions


def _unknown_to_the_api(observed: ObservedPartitions) -> Iterator[Orphan | Purge]:
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

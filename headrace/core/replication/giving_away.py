"""What a broker has been seen to give away: the file `giving-away` (`sealed` text), one for all of its partitions.

    placed here, `removing` names this broker ──> noted, with that partition epoch ── placed here to stay ──> forgotten
                                                    └── led elsewhere in a later epoch ──> given away

Without such a note what the API server places elsewhere is kept for ever, because its own data may have gone back. The
note outlives the process: replicas are moved while their old brokers are away, too. It does not say how the replica
came to be dropped: `cluster recover` may have done that, and here may be the only copy. So what was given away is set
aside for the orphan retention, and deleted at once only where this very life saw the move to its end (`Leaving`).
Pure; called by `headrace_broker`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from headrace.core.log.sealed import DamagedFileError, seal, unseal
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, LeaderEpoch, PartitionEpoch, PartitionId, PartitionKey, SetUid, TopicUid

GIVING_AWAY_FILE: Final = "giving-away"

Notes = Mapping[PartitionKey, PartitionEpoch]
"""By partition: the epoch in which this broker was first to be removed."""

Leaving = Mapping[PartitionKey, tuple[SetUid, LeaderEpoch]]
"""By partition: in which set and leader epoch this life last saw that this broker is to be removed. In memory only."""


def noted(
    before: Notes, me: BrokerId, sets: Iterable[PartitionSet], held: Collection[PartitionKey]
) -> dict[PartitionKey, PartitionEpoch]:
    """What is to be remembered, now that `sets` are seen; `held` is everything that is on the disk."""
    notes = {key: epoch for key, epoch in before.items() if key in held}
    for partition_set in sets:
        for state in partition_set.partitions:
            key = partition_set.key(state.id)
            if me in state.removing:
                notes.setdefault(key, state.partition_epoch)
            elif me in state.replicas:
                notes.pop(key, None)
    return notes


def given_away(notes: Notes, sets: Iterable[PartitionSet]) -> frozenset[PartitionKey]:
    """Those of which a set shows what has become of them since."""
    states = ((each.key(state.id), state) for each in sets for state in each.partitions)
    return frozenset(key for key, state in states if key in notes and state.partition_epoch > notes[key])


def seen_leaving(
    before: Leaving, me: BrokerId, sets: Iterable[PartitionSet], regressed: Collection[TopicUid]
) -> dict[PartitionKey, tuple[SetUid, LeaderEpoch]]:
    """What this life has seen, now that it sees `sets`; nothing of topics whose metadata is seen to have gone back."""
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
    """Those that the same leader goes on with: it has all that is committed. `cluster recover` raises the epoch.

    A set that was deleted and made anew may say of the same epoch what was never so.
    """
    states = ((each, state) for each in sets for state in each.partitions)
    shown = ((each.key(state.id), (each.uid, state.leader_epoch)) for each, state in states)
    return frozenset(key for key, seen in shown if leaving.get(key) == seen)


def format_giving_away(notes: Notes) -> bytes:
    """A line for each partition: uid, partition, partition epoch."""
    return seal(GIVING_AWAY_FILE, [f"{key.uid} {key.partition} {epoch}" for key, epoch in notes.items()])


def parse_giving_away(content: bytes) -> dict[PartitionKey, PartitionEpoch]:
    """Raises DamagedFileError."""
    lines = unseal(GIVING_AWAY_FILE, content)
    try:
        rows = [line.split(" ") for line in lines]
        return {PartitionKey(TopicUid(uid), PartitionId(int(n))): PartitionEpoch(int(epoch)) for uid, n, epoch in rows}
    except ValueError as error:
        raise DamagedFileError(f"{lines[:3]} are not rows of a uid, a partition and an epoch") from error

"""What a broker has been seen to give away: the file `giving-away` (`sealed` text), one for all of its partitions.

    placed here, `removing` names this broker ──> noted, with that partition epoch ── placed here to stay ──> forgotten
                                                    └── led elsewhere in a later epoch ──> gone: the data is deleted

Without such a note what the API server places elsewhere is kept, because its own data may have gone back. The note
outlives the process: replicas are moved while their old brokers are away, too. An older state than the noted one says
nothing of what has become of the partition since. Pure; called by `headrace_broker`.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from headrace.core.log.sealed import DamagedFileError, seal, unseal
from headrace.core.resources.partition_set import PartitionSet
from headrace.core.types import BrokerId, PartitionEpoch, PartitionId, PartitionKey, TopicUid

GIVING_AWAY_FILE: Final = "giving-away"

Notes = Mapping[PartitionKey, PartitionEpoch]
"""By partition: the epoch in which this broker was first to be removed."""


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

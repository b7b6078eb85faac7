"""The greatest leader epoch that a broker has seen of each partition: the file `epochs-seen` (`sealed` text).

A promise that outlives the process: to lead, vote and follow in no earlier epoch, whatever the API server says later
(design section 6), also where the log itself has no batch of that epoch. One file for all partitions of a broker, so
that any number of promises is one sync. Called by `headrace_broker.storage`.
"""

from collections.abc import Mapping
from typing import Final

from headrace.core.log.sealed import DamagedFileError, seal, unseal
from headrace.core.types import LeaderEpoch, PartitionId, PartitionKey, TopicUid

EPOCHS_SEEN_FILE: Final = "epochs-seen"


def raised(
    known: Mapping[PartitionKey, LeaderEpoch], seen: Mapping[PartitionKey, LeaderEpoch]
) -> dict[PartitionKey, LeaderEpoch]:
    """Both together: no epoch ever falls."""
    return {**known, **{key: epoch for key, epoch in seen.items() if epoch > known.get(key, -1)}}


def format_epochs_seen(epochs: Mapping[PartitionKey, LeaderEpoch]) -> bytes:
    """A line for each partition: uid, partition, epoch."""
    return seal(EPOCHS_SEEN_FILE, [f"{key.uid} {key.partition} {epoch}" for key, epoch in epochs.items()])


def parse_epochs_seen(content: bytes) -> dict[PartitionKey, LeaderEpoch]:
    """Raises DamagedFileError."""
    lines = unseal(EPOCHS_SEEN_FILE, content)
    try:
        rows = [line.split(" ") for line in lines]
        return {PartitionKey(TopicUid(uid), PartitionId(int(n))): LeaderEpoch(int(epoch)) for uid, n, epoch in rows}
    except ValueError as error:
        raise DamagedFileError(f"{lines[:3]} are not rows of a uid, a partition and an epoch") from error

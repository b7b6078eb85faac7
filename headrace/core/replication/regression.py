"""What a broker remembers of leader epochs, set against what the API server says: did its data go back? No I/O.

Epochs never go back. A broker puts the highest leader epoch of each of its partitions on disk before it acts on it, and
believes no state in a lower one from then on, whatever became of its log (design section 6). Where the API server says
less than is known, nobody is elected for that topic until `headrace cluster recover` has set epochs above all.
"""

from collections.abc import Iterable, Mapping

from headrace.core.log.epochs import NO_EPOCH
from headrace.core.resources.partition_set import PartitionSet, PartitionState
from headrace.core.types import BrokerId, LeaderEpoch, PartitionKey, TopicUid

Seen = Mapping[PartitionKey, LeaderEpoch]


def may_act_on(state: PartitionState, me: BrokerId, seen: LeaderEpoch) -> bool:
    """Whether its epoch is on disk, as `seen` is; of what is placed elsewhere nothing has to be remembered."""
    return me not in state.replicas or state.leader_epoch <= seen


def to_remember(sets: Iterable[PartitionSet], me: BrokerId, seen: Seen) -> dict[PartitionKey, LeaderEpoch]:
    """Epochs of this broker's partitions that have to be on disk before anybody acts on them.

    Of topics that are being deleted nothing is acted on any more, and what is forgotten with the data stays forgotten.
    """
    return {
        partition_set.key(state.id): state.leader_epoch
        for partition_set in sets
        if not partition_set.deleting
        for state in partition_set.partitions
        if not may_act_on(state, me, seen.get(partition_set.key(state.id), NO_EPOCH))
    }


def regressed_topics(sets: Iterable[PartitionSet], seen: Seen) -> frozenset[TopicUid]:
    """Topics with a partition in a lower epoch than this broker has seen, wherever it is placed by now."""
    return frozenset(
        partition_set.topic_uid
        for partition_set in sets
        for state in partition_set.partitions
        if state.leader_epoch < seen.get(partition_set.key(state.id), NO_EPOCH)
    )
